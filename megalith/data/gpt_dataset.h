// Training samples from a stream of documents: the order of samples as a pure function of seed and index.
//
// As in Megatron-LM, an epoch is all documents in shuffled order laid end to end, sample k is tokens [k T, k
// T + T] of that stream (T inputs and one more target), and samples are shuffled again. Each epoch has its
// own shuffles (what Megatron does for a short last epoch it does for every one here), so sample i never
// depends on how long the run will be.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "megalith/data/dataset_split.h"

namespace megalith {

struct GptDatasetOptions {
  int64_t sequence_length = 1024;
  uint64_t seed = 1234;
  /// Tells datasets of one recipe apart in the shuffles.
  uint64_t dataset_number = 0;
  /// Off: documents and samples come in file order, in every epoch.
  bool shuffle = true;
};

class GptDataset {
 public:
  /// Throws InputError when the part has no tokens or the sequence length is not positive.
  GptDataset(DatasetPart part, GptDatasetOptions options);

  /// Whole samples in one pass, the ones that need no token of a second pass: (tokens - 1) / T.
  uint64_t samples_per_pass() const;
  uint64_t tokens_per_epoch() const { return part_.tokens(); }
  /// The epoch that sample `index` starts in.
  uint64_t epoch_of(uint64_t index) const;
  const DatasetPart& part() const { return part_; }
  int64_t sequence_length() const { return options_.sequence_length; }

  /// Writes the T+1 tokens of sample `index` (any index: epochs follow each other without end), and for each
  /// the column of the first token of its document in this sample. Both spans have T+1 entries. Safe to call
  /// from several threads.
  void sample(uint64_t index, std::span<int32_t> tokens, std::span<int32_t> document_start) const;

 private:
  struct Epoch {
    uint64_t number = 0;
    std::vector<uint64_t> documents;     // Order of the documents that have tokens.
    std::vector<uint64_t> first_token;   // Position in the epoch of each of them.
    std::vector<uint64_t> sample_order;  // Empty when samples are not shuffled.
  };
  uint64_t first_sample(uint64_t epoch) const;
  std::shared_ptr<const Epoch> epoch(uint64_t number) const;
  std::shared_ptr<const Epoch> build_epoch(uint64_t number) const;

  DatasetPart part_;
  GptDatasetOptions options_;
  std::vector<uint64_t> nonempty_documents_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Epoch>> cached_epochs_;
};

}  // namespace megalith
