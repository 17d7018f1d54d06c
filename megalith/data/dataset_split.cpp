#include "megalith/data/dataset_split.h"

#include <charconv>
#include <cmath>
#include <numeric>

#include "megalith/base/error.h"
#include "megalith/base/log.h"

namespace megalith {

DatasetPart::DatasetPart(std::shared_ptr<const IndexedDataset> dataset)
    : dataset_(std::move(dataset)), last_document_(dataset_->documents()), tokens_(dataset_->tokens()) {}

DatasetPart DatasetPart::of_documents(std::shared_ptr<const IndexedDataset> dataset, uint64_t first,
                                      uint64_t last) {
  check(first <= last && last <= dataset->documents(), "{}: there are no documents {} to {}",
        dataset->prefix().string(), first, last);
  DatasetPart part(std::move(dataset));
  part.first_document_ = first;
  part.last_document_ = last;
  part.tokens_ = 0;
  for (uint64_t d = first; d < last; ++d) part.tokens_ += part.dataset_->document_length(d);
  return part;
}

DatasetPart::DatasetPart(std::shared_ptr<const IndexedDataset> dataset, uint64_t begin, uint64_t end)
    : dataset_(std::move(dataset)), tokens_(end - begin) {
  check(begin <= end && end <= dataset_->tokens(), "{}: there are no tokens {} to {}",
        dataset_->prefix().string(), begin, end);
  if (begin == end) return;
  uint64_t at = 0;
  uint64_t document = 0;
  for (; at + dataset_->document_length(document) <= begin; ++document)
    at += dataset_->document_length(document);
  first_document_ = document;
  skipped_at_front_ = begin - at;
  for (; at + dataset_->document_length(document) < end; ++document)
    at += dataset_->document_length(document);
  last_document_ = document + 1;
  skipped_at_back_ = at + dataset_->document_length(document) - end;
}

uint64_t DatasetPart::document_length(uint64_t document) const {
  uint64_t length = dataset_->document_length(first_document_ + document);
  if (document == 0) length -= skipped_at_front_;
  if (document + 1 == documents()) length -= skipped_at_back_;
  return length;
}

void DatasetPart::read_document(uint64_t document, uint64_t offset, std::span<int32_t> out) const {
  check(document < documents() && offset + out.size() <= document_length(document),
        "{}: {} tokens from {} on of document {} are outside the part", dataset_->prefix().string(),
        out.size(), offset, document);
  dataset_->read_document(first_document_ + document, offset + (document == 0 ? skipped_at_front_ : 0), out);
}

SplitWeights SplitWeights::parse(std::string_view text) {
  SplitWeights split;
  split.weights = {0.0, 0.0, 0.0};
  size_t count = 0;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    std::string_view number = rest.substr(0, comma);
    while (!number.empty() && number.front() == ' ') number.remove_prefix(1);
    while (!number.empty() && number.back() == ' ') number.remove_suffix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    check_input(count < 3 && error == std::errc() && end == number.data() + number.size() &&
                    std::isfinite(value) && value >= 0,
                "split '{}': expected one to three weights of at least 0, as in 949,50,1", text);
    split.weights[count++] = value;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  const double sum = std::accumulate(split.weights.begin(), split.weights.end(), 0.0);
  check_input(sum > 0 && std::isfinite(sum), "split '{}': all weights are 0", text);
  for (double& weight : split.weights) weight /= sum;
  return split;
}

std::array<DatasetPart, 3> split_dataset(const std::shared_ptr<const IndexedDataset>& dataset,
                                         const SplitWeights& weights) {
  const auto bounds = [&](uint64_t size) {
    std::array<uint64_t, 4> result{};
    double sum = 0;
    for (size_t part = 0; part < 3; ++part) {
      sum += weights.weights[part];
      // Ties to even, as Python's round: the bounds are Megatron-LM's.
      const double bound = std::nearbyint(std::min(sum, 1.0) * static_cast<double>(size));
      result[part + 1] = weights.weights[part] == 0 ? result[part] : static_cast<uint64_t>(bound);
    }
    // The last part with a weight ends the dataset, whatever the sum was rounded to.
    for (size_t part = 3; part > 0; --part) {
      result[part] = size;
      if (weights.weights[part - 1] > 0) break;
    }
    return result;
  };
  const auto by_document = bounds(dataset->documents());
  std::array<DatasetPart, 3> parts = {DatasetPart::of_documents(dataset, by_document[0], by_document[1]),
                                      DatasetPart::of_documents(dataset, by_document[1], by_document[2]),
                                      DatasetPart::of_documents(dataset, by_document[2], by_document[3])};
  bool enough = true;
  for (size_t part = 0; part < 3; ++part) enough &= weights.weights[part] == 0 || parts[part].tokens() > 0;
  if (enough) return parts;
  const auto by_token = bounds(dataset->tokens());
  log_info("{}: {} documents are too few for the split, so it is by token ranges: {}, {} and {} tokens",
           dataset->prefix().string(), dataset->documents(), by_token[1] - by_token[0],
           by_token[2] - by_token[1], by_token[3] - by_token[2]);
  return {DatasetPart(dataset, by_token[0], by_token[1]), DatasetPart(dataset, by_token[1], by_token[2]),
          DatasetPart(dataset, by_token[2], by_token[3])};
}

}  // namespace megalith
