// Train, validation and test parts of a token dataset.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/formats/indexed_dataset.h"

namespace megalith {

/// A run of documents of a dataset, of which the first may begin and the last may end inside.
class DatasetPart {
 public:
  /// The whole dataset.
  explicit DatasetPart(std::shared_ptr<const IndexedDataset> dataset);
  /// Tokens [begin, end) of all tokens in document order.
  DatasetPart(std::shared_ptr<const IndexedDataset> dataset, uint64_t begin, uint64_t end);
  /// Documents [first, last).
  static DatasetPart of_documents(std::shared_ptr<const IndexedDataset> dataset, uint64_t first,
                                  uint64_t last);

  const IndexedDataset& dataset() const { return *dataset_; }
  uint64_t documents() const { return last_document_ - first_document_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t document_length(uint64_t document) const;
  /// Copies tokens of document `document` (0 is the part's first) from `offset` on.
  void read_document(uint64_t document, uint64_t offset, std::span<int32_t> out) const;

 private:
  std::shared_ptr<const IndexedDataset> dataset_;
  uint64_t first_document_ = 0;
  uint64_t last_document_ = 0;
  uint64_t skipped_at_front_ = 0;  // Tokens of the first document before the part.
  uint64_t skipped_at_back_ = 0;   // Tokens of the last document after the part.
  uint64_t tokens_ = 0;
};

/// Weights of the train, validation and test parts, summing to 1.
struct SplitWeights {
  std::array<double, 3> weights{1.0, 0.0, 0.0};
  /// Reads "949,50,1" (one to three numbers, normalised to sum 1). Throws InputError for negative, missing or
  /// all-zero ones.
  static SplitWeights parse(std::string_view text);
};

/// The three parts: by documents with bounds round(cumulative weight * documents), as in Megatron-LM; when
/// that leaves a part with a weight but without tokens, by token ranges instead (logged). Parts without a
/// weight are empty.
std::array<DatasetPart, 3> split_dataset(const std::shared_ptr<const IndexedDataset>& dataset,
                                         const SplitWeights& weights);

}  // namespace megalith
