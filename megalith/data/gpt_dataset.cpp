#include "megalith/data/gpt_dataset.h"

#include <algorithm>
#include <numeric>

#include "megalith/base/error.h"
#include "megalith/base/random.h"

namespace megalith {

namespace {

// Epochs kept at hand: a sample can lie on the border of two, and readers may be a little apart.
constexpr size_t kCachedEpochs = 4;

uint64_t ceiling_ratio(unsigned __int128 a, uint64_t b) {
  return static_cast<uint64_t>((a + b - 1) / b);
}

// Fisher and Yates; the stream is keyed by everything that tells this shuffle from others.
void shuffle(std::vector<uint64_t>& values, const GptDatasetOptions& options, uint64_t epoch, uint64_t what) {
  const uint64_t stream = mix64(mix64(options.dataset_number, epoch), what);
  RandomSequence random(RandomStream(options.seed, RandomUse::shuffle, stream));
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

}  // namespace

GptDataset::GptDataset(DatasetPart part, GptDatasetOptions options)
    : part_(std::move(part)), options_(options) {
  check_input(options_.sequence_length > 0, "sequence length {}: must be at least 1",
              options_.sequence_length);
  check_input(part_.tokens() > 0, "{}: there are no tokens to train or evaluate on",
              part_.dataset().prefix().string());
  for (uint64_t d = 0; d < part_.documents(); ++d) {
    if (part_.document_length(d) > 0) nonempty_documents_.push_back(d);
  }
}

uint64_t GptDataset::samples_per_pass() const {
  return (part_.tokens() - 1) / static_cast<uint64_t>(options_.sequence_length);
}

// Sample k begins at token k T of the endless stream, so epoch e begins with the first k with k T >= e N.
uint64_t GptDataset::first_sample(uint64_t epoch) const {
  return ceiling_ratio(static_cast<unsigned __int128>(epoch) * part_.tokens(),
                       static_cast<uint64_t>(options_.sequence_length));
}

uint64_t GptDataset::epoch_of(uint64_t index) const {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(index) *
                               static_cast<uint64_t>(options_.sequence_length) / part_.tokens());
}

std::shared_ptr<const GptDataset::Epoch> GptDataset::build_epoch(uint64_t number) const {
  auto epoch = std::make_shared<Epoch>();
  epoch->number = number;
  epoch->documents = nonempty_documents_;
  if (options_.shuffle) shuffle(epoch->documents, options_, number, 0);
  epoch->first_token.reserve(epoch->documents.size());
  uint64_t at = 0;
  for (const uint64_t document : epoch->documents) {
    epoch->first_token.push_back(at);
    at += part_.document_length(document);
  }
  if (options_.shuffle) {
    const uint64_t first = first_sample(number);
    epoch->sample_order.resize(first_sample(number + 1) - first);
    std::iota(epoch->sample_order.begin(), epoch->sample_order.end(), first);
    shuffle(epoch->sample_order, options_, number, 1);
  }
  return epoch;
}

std::shared_ptr<const GptDataset::Epoch> GptDataset::epoch(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  for (const auto& cached : cached_epochs_) {
    if (cached->number == number) return cached;
  }
  if (cached_epochs_.size() == kCachedEpochs) cached_epochs_.erase(cached_epochs_.begin());
  cached_epochs_.push_back(build_epoch(number));
  return cached_epochs_.back();
}

void GptDataset::sample(uint64_t index, std::span<int32_t> tokens, std::span<int32_t> document_start) const {
  const auto length = static_cast<uint64_t>(options_.sequence_length);
  check(tokens.size() == length + 1 && document_start.size() == length + 1, "a sample has {} tokens, not {}",
        length + 1, tokens.size());
  uint64_t number = epoch_of(index);
  auto current = epoch(number);
  const uint64_t sample = options_.shuffle ? current->sample_order[index - first_sample(number)] : index;
  // Position in the epoch: sample T - number N.
  auto at = static_cast<uint64_t>(static_cast<unsigned __int128>(sample) * length -
                                  static_cast<unsigned __int128>(number) * part_.tokens());
  size_t document =
      static_cast<size_t>(std::upper_bound(current->first_token.begin(), current->first_token.end(), at) -
                          current->first_token.begin() - 1);
  uint64_t offset = at - current->first_token[document];
  for (size_t filled = 0; filled < tokens.size();) {
    if (document == current->documents.size()) {
      current = epoch(++number);
      document = 0;
    }
    const uint64_t document_number = current->documents[document];
    const uint64_t rest = part_.document_length(document_number) - offset;
    const size_t part = static_cast<size_t>(std::min<uint64_t>(rest, tokens.size() - filled));
    part_.read_document(document_number, offset, tokens.subspan(filled, part));
    std::fill_n(document_start.begin() + static_cast<ptrdiff_t>(filled), part, static_cast<int32_t>(filled));
    filled += part;
    ++document;
    offset = 0;
  }
}

}  // namespace megalith
