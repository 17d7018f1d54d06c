// Where a trainer gets its batches: datasets of a recipe, split and blended, addressed by sample number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megalith/data/batch.h"
#include "megalith/data/blend.h"
#include "megalith/data/gpt_dataset.h"
#include "megalith/data/token_masking.h"

namespace megalith {

/// One entry of data.train (or validation, test) in a recipe.
struct DatasetEntry {
  /// Path of the dataset without .bin and .idx.
  std::string path;
  double weight = 1.0;
};

struct BatchSourceOptions {
  int64_t sequence_length = 1024;
  uint64_t seed = 1234;
  bool shuffle = true;
  /// Positions and attention restart at document bounds. The pair (last token of a document, first token of
  /// the next) then has loss_mask 0, since the prediction cannot see anything that bears on it. When off,
  /// every pair counts, as Megatron-LM does by default. Documents are those of the dataset's index, whether
  /// or not they end with an end-of-document token.
  bool reset_at_documents = false;
  /// For masked language models: targets are the hidden tokens themselves, not the ones that follow.
  std::shared_ptr<const TokenMasking> masking = nullptr;
};

/// Batches of one part (train, validation or test). Sample n is the same whatever was asked before and
/// however samples are grouped into batches.
class BatchSource {
 public:
  BatchSource(std::vector<std::shared_ptr<const GptDataset>> datasets, std::vector<double> weights,
              BatchSourceOptions options);

  /// Fills `batch` with samples first, first + 1, ..., first + rows - 1.
  void fill(uint64_t first, int64_t rows, Batch& batch) const;
  /// Fills `batch` with the given samples.
  void fill(std::span<const uint64_t> samples, Batch& batch) const;

  /// Samples until a dataset is first repeated: of one dataset, the whole samples of one pass.
  uint64_t samples_per_pass() const;
  uint64_t tokens_per_epoch() const;
  /// Checks every token of filled batches: an id of `vocabulary_size` or more is an InputError that names the
  /// dataset. Not checked before this is called.
  void require_vocabulary(int64_t vocabulary_size) { vocabulary_size_ = vocabulary_size; }
  int64_t sequence_length() const { return options_.sequence_length; }

 private:
  void fill_row(uint64_t sample, int64_t row, Batch& batch) const;

  std::vector<std::shared_ptr<const GptDataset>> datasets_;
  Blend blend_;
  BatchSourceOptions options_;
  int64_t vocabulary_size_ = 0;
};

/// The sources of a recipe; validation and test are null when they have no tokens.
struct BatchSources {
  std::shared_ptr<BatchSource> train;
  std::shared_ptr<BatchSource> validation;
  std::shared_ptr<BatchSource> test;
};

/// Opens `train` and splits every dataset by `split` ("949,50,1"). When `validation` or `test` entries are
/// given, they take the place of the split's parts, and with both (or with an empty `split`) the train
/// datasets are used whole. The validation and test sources are not shuffled, so that losses of different
/// runs compare.
BatchSources open_batch_sources(const std::vector<DatasetEntry>& train,
                                const std::vector<DatasetEntry>& validation,
                                const std::vector<DatasetEntry>& test, const std::string& split,
                                const BatchSourceOptions& options);

}  // namespace megalith
