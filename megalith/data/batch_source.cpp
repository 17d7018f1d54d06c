#include "megalith/data/batch_source.h"

#include <algorithm>
#include <limits>

#include "megalith/base/error.h"

namespace megalith {

BatchSource::BatchSource(std::vector<std::shared_ptr<const GptDataset>> datasets, std::vector<double> weights,
                         BatchSourceOptions options)
    : datasets_(std::move(datasets)), blend_(std::move(weights)), options_(options) {
  check_input(datasets_.size() == blend_.weights().size(), "{} datasets, but {} weights", datasets_.size(),
              blend_.weights().size());
  for (const auto& dataset : datasets_) {
    check(dataset->sequence_length() == options_.sequence_length, "{}: sequence length {} instead of {}",
          dataset->part().dataset().prefix().string(), dataset->sequence_length(), options_.sequence_length);
  }
}

void BatchSource::fill(uint64_t first, int64_t rows, Batch& batch) const {
  batch.resize(rows, options_.sequence_length);
  batch.loss_tokens = 0;
  for (int64_t row = 0; row < rows; ++row) fill_row(first + static_cast<uint64_t>(row), row, batch);
}

void BatchSource::fill(std::span<const uint64_t> samples, Batch& batch) const {
  batch.resize(static_cast<int64_t>(samples.size()), options_.sequence_length);
  batch.loss_tokens = 0;
  for (size_t row = 0; row < samples.size(); ++row) fill_row(samples[row], static_cast<int64_t>(row), batch);
}

void BatchSource::fill_row(uint64_t sample, int64_t row, Batch& batch) const {
  const Blend::Pick pick = blend_.at(sample);
  const GptDataset& dataset = *datasets_[pick.dataset];
  const auto length = static_cast<size_t>(options_.sequence_length);
  // One more than T; kept by each thread, so that a steady step allocates nothing.
  thread_local std::vector<int32_t> tokens, starts;
  tokens.resize(length + 1);
  starts.resize(length + 1);
  dataset.sample(pick.index, tokens, starts);
  if (vocabulary_size_ > 0) {
    const int32_t largest = *std::max_element(tokens.begin(), tokens.end());
    check_input(largest < vocabulary_size_, "{}: token id {} is outside the vocabulary of {}",
                dataset.part().dataset().prefix().string(), largest, vocabulary_size_);
  }
  const size_t begin = static_cast<size_t>(row) * length;
  int64_t counted = 0;
  for (size_t t = 0; t < length; ++t) {
    const int32_t start = options_.reset_at_documents ? starts[t] : 0;
    const bool counts = !options_.reset_at_documents || starts[t + 1] == start;
    batch.tokens[begin + t] = tokens[t];
    batch.targets[begin + t] = tokens[t + 1];
    batch.loss_mask[begin + t] = counts ? 1.0f : 0.0f;
    batch.positions[begin + t] = static_cast<int32_t>(t) - start;
    batch.document_start[begin + t] = start;
    counted += counts ? 1 : 0;
  }
  if (options_.masking != nullptr) {
    counted = options_.masking->apply(sample, std::span(batch.tokens).subspan(begin, length),
                                      std::span(batch.targets).subspan(begin, length),
                                      std::span(batch.loss_mask).subspan(begin, length));
  }
  batch.loss_tokens += counted;
}

uint64_t BatchSource::samples_per_pass() const {
  if (datasets_.size() == 1) return datasets_[0]->samples_per_pass();
  double fewest = std::numeric_limits<double>::infinity();
  for (size_t d = 0; d < datasets_.size(); ++d) {
    if (blend_.weights()[d] == 0) continue;
    fewest = std::min(fewest, static_cast<double>(datasets_[d]->samples_per_pass()) / blend_.weights()[d]);
  }
  return static_cast<uint64_t>(fewest);
}

uint64_t BatchSource::tokens_per_epoch() const {
  uint64_t sum = 0;
  for (const auto& dataset : datasets_) sum += dataset->tokens_per_epoch();
  return sum;
}

namespace {

using Parts = std::vector<std::pair<DatasetPart, double>>;

std::shared_ptr<BatchSource> make_source(const Parts& parts, const BatchSourceOptions& options,
                                         uint64_t first_number) {
  std::vector<std::shared_ptr<const GptDataset>> datasets;
  std::vector<double> weights;
  uint64_t number = first_number;
  for (const auto& [part, weight] : parts) {
    // Numbered by their place in the recipe, so that one dataset's shuffle does not hang on whether another
    // is empty.
    const uint64_t own_number = number++;
    if (weight == 0 || part.tokens() == 0) continue;
    datasets.push_back(
        std::make_shared<GptDataset>(part, GptDatasetOptions{.sequence_length = options.sequence_length,
                                                             .seed = options.seed,
                                                             .dataset_number = own_number,
                                                             .shuffle = options.shuffle}));
    weights.push_back(weight);
  }
  if (datasets.empty()) return nullptr;
  return std::make_shared<BatchSource>(std::move(datasets), std::move(weights), options);
}

Parts open_whole(const std::vector<DatasetEntry>& entries) {
  Parts parts;
  for (const DatasetEntry& entry : entries) {
    parts.emplace_back(DatasetPart(std::make_shared<IndexedDataset>(entry.path)), entry.weight);
  }
  return parts;
}

}  // namespace

BatchSources open_batch_sources(const std::vector<DatasetEntry>& train,
                                const std::vector<DatasetEntry>& validation,
                                const std::vector<DatasetEntry>& test, const std::string& split,
                                const BatchSourceOptions& options) {
  check_input(!train.empty(), "data.train: no dataset is given");
  for (const auto* entries : {&train, &validation, &test}) {
    if (entries->empty()) continue;
    std::vector<double> weights;
    for (const DatasetEntry& entry : *entries) weights.push_back(entry.weight);
    const Blend checked(weights);
  }
  SplitWeights weights;  // All to train.
  if (!split.empty()) weights = SplitWeights::parse(split);
  // A part that has datasets of its own takes nothing from the train datasets.
  if (!validation.empty()) weights.weights[1] = 0;
  if (!test.empty()) weights.weights[2] = 0;
  check_input(weights.weights[0] > 0, "split '{}': the train part has no weight", split);
  const double sum = weights.weights[0] + weights.weights[1] + weights.weights[2];
  for (double& weight : weights.weights) weight /= sum;

  std::array<Parts, 3> parts;
  for (const DatasetEntry& entry : train) {
    const auto split_parts = split_dataset(std::make_shared<IndexedDataset>(entry.path), weights);
    for (size_t part = 0; part < 3; ++part) parts[part].emplace_back(split_parts[part], entry.weight);
  }
  if (!validation.empty()) parts[1] = open_whole(validation);
  if (!test.empty()) parts[2] = open_whole(test);

  BatchSourceOptions unshuffled = options;
  unshuffled.shuffle = false;
  BatchSources sources;
  sources.train = make_source(parts[0], options, 0);
  check_input(sources.train != nullptr, "data.train: the datasets hold no tokens");
  sources.validation = make_source(parts[1], unshuffled, 1u << 16);
  sources.test = make_source(parts[2], unshuffled, 1u << 17);
  return sources;
}

}  // namespace megalith
