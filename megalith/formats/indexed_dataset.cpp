#include "megalith/formats/indexed_dataset.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include "megalith/base/error.h"

namespace megalith {

namespace {

static_assert(std::endian::native == std::endian::little, "datasets are little endian");

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr uint64_t kHeaderBytes = 34;  // Magic, version, type code, two counts.

// The arrays begin at odd offsets, so entries are copied out.
template <class T>
T load(const std::byte* array, uint64_t index) {
  T value;
  std::memcpy(&value, array + index * sizeof(T), sizeof(T));
  return value;
}

std::filesystem::path with_suffix(const std::filesystem::path& prefix, const char* suffix) {
  std::filesystem::path path = prefix;
  path += suffix;
  return path;
}

}  // namespace

std::filesystem::path bin_path(const std::filesystem::path& prefix) {
  return with_suffix(prefix, ".bin");
}
std::filesystem::path idx_path(const std::filesystem::path& prefix) {
  return with_suffix(prefix, ".idx");
}

std::string_view name(TokenType type) {
  return type == TokenType::uint16 ? "uint16" : "int32";
}

IndexedDatasetWriter::IndexedDatasetWriter(std::filesystem::path prefix, TokenType type)
    : prefix_(std::move(prefix)), type_(type) {
  bin_.emplace(with_suffix(prefix_, ".bin.partial"));
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  if (!bin_) return;
  bin_.reset();
  std::error_code ignored;
  std::filesystem::remove(with_suffix(prefix_, ".bin.partial"), ignored);
}

void IndexedDatasetWriter::add_sequence(std::span<const int32_t> tokens) {
  check(bin_.has_value(), "{}: the dataset is finished already", prefix_.string());
  check_input(tokens.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
              "{}: sequence {} has {} tokens, more than an index can hold", prefix_.string(), sequences(),
              tokens.size());
  const int32_t largest = type_ == TokenType::uint16 ? 65535 : std::numeric_limits<int32_t>::max();
  // One test for both bounds: a negative id is a large unsigned one.
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](int32_t id) {
    return static_cast<uint32_t>(id) > static_cast<uint32_t>(largest);
  });
  check_input(bad == tokens.end(), "{}: sequence {}, token {}: id {} does not fit {}", prefix_.string(),
              sequences(), bad - tokens.begin(), bad == tokens.end() ? 0 : *bad, name(type_));
  if (type_ == TokenType::int32) {
    bin_->write(tokens.data(), tokens.size_bytes());
  } else {
    encoded_.resize(tokens.size() * 2);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto id = static_cast<uint16_t>(tokens[i]);
      std::memcpy(encoded_.data() + 2 * i, &id, 2);
    }
    bin_->write(encoded_.data(), encoded_.size());
  }
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  pointers_.push_back(static_cast<int64_t>(bytes_));
  bytes_ += tokens.size() * token_bytes(type_);
}

void IndexedDatasetWriter::end_document() {
  document_indices_.push_back(static_cast<int64_t>(sequences()));
}

void IndexedDatasetWriter::add_index(const std::filesystem::path& other_prefix) {
  check(bin_.has_value(), "{}: the dataset is finished already", prefix_.string());
  check(document_indices_.back() == static_cast<int64_t>(sequences()), "{}: a document is unfinished",
        prefix_.string());
  const IndexedDataset other(other_prefix);
  check_input(other.type() == type_, "{}: has type {}, but the merged dataset {}",
              idx_path(other_prefix).string(), name(other.type()), name(type_));
  check_input(!other.has_modes(), "{}: datasets with sequence modes cannot be merged",
              idx_path(other_prefix).string());
  const auto first_sequence = static_cast<int64_t>(sequences());
  for (uint64_t s = 0; s < other.sequences(); ++s) {
    lengths_.push_back(static_cast<int32_t>(other.sequence_length(s)));
    pointers_.push_back(static_cast<int64_t>(bytes_ + other.sequence_pointer(s)));
  }
  for (uint64_t d = 1; d <= other.documents(); ++d) {
    document_indices_.push_back(first_sequence + static_cast<int64_t>(other.document_index(d)));
  }
  const auto content = other.bin_.bytes();
  constexpr size_t piece = size_t{64} << 20;
  for (size_t at = 0; at < content.size(); at += piece) {
    bin_->write(content.data() + at, std::min(piece, content.size() - at));
  }
  bytes_ += content.size();
}

void IndexedDatasetWriter::finish() {
  check(bin_.has_value(), "{}: the dataset is finished already", prefix_.string());
  check(document_indices_.back() == static_cast<int64_t>(sequences()), "{}: the last document is unfinished",
        prefix_.string());
  const auto bin_partial = with_suffix(prefix_, ".bin.partial");
  const auto idx_partial = with_suffix(prefix_, ".idx.partial");
  bin_->sync();
  bin_->close();
  {
    OutputFile index(idx_partial);
    const auto write_number = [&](auto value) { index.write(&value, sizeof(value)); };
    const auto write_array = [&](const auto& values) {
      index.write(values.data(), values.size() * sizeof(values[0]));
    };
    index.write(kMagic);
    write_number(kVersion);
    write_number(static_cast<uint8_t>(type_));
    write_number(static_cast<uint64_t>(lengths_.size()));
    write_number(static_cast<uint64_t>(document_indices_.size()));
    write_array(lengths_);
    write_array(pointers_);
    write_array(document_indices_);
    index.sync();
    index.close();
  }
  // A dataset that is replaced must not be read half old, half new: its index goes first.
  std::error_code error;
  std::filesystem::remove(idx_path(prefix_), error);
  std::filesystem::rename(bin_partial, bin_path(prefix_), error);
  check(!error, "{}: cannot be renamed into place: {}", bin_partial.string(), error.message());
  bin_.reset();
  std::filesystem::rename(idx_partial, idx_path(prefix_), error);
  check(!error, "{}: cannot be renamed into place: {}", idx_partial.string(), error.message());
  const auto directory = prefix_.parent_path();
  sync_directory(directory.empty() ? std::filesystem::path(".") : directory);
}

IndexedDataset::IndexedDataset(std::filesystem::path prefix)
    : prefix_(std::move(prefix)), index_(idx_path(prefix_)), bin_(bin_path(prefix_)) {
  const std::string file = index_.path().string();
  const std::byte* data = index_.data();
  const uint64_t size = index_.size();
  check_input(size >= kHeaderBytes, "{}: {} bytes are too short for the header of a token dataset", file,
              size);
  check_input(index_.text().substr(0, kMagic.size()) == kMagic, "{}: magic: not the index of a token dataset",
              file);
  const auto version = load<uint64_t>(data + 9, 0);
  check_input(version == kVersion, "{}: version: {} is not supported, only 1", file, version);
  const auto code = load<uint8_t>(data + 17, 0);
  check_input(
      code == static_cast<uint8_t>(TokenType::uint16) || code == static_cast<uint8_t>(TokenType::int32),
      "{}: type code: {} is not a token type (4 int32, 8 uint16)", file, code);
  type_ = static_cast<TokenType>(code);
  sequences_ = load<uint64_t>(data + 18, 0);
  document_indices_count_ = load<uint64_t>(data + 26, 0);
  const uint64_t rest = size - kHeaderBytes;
  check_input(sequences_ <= rest / 12, "{}: sequence count: {} sequences do not fit {} bytes", file,
              sequences_, size);
  check_input(document_indices_count_ >= 1, "{}: document count: 0 document indices, at least 1 is needed",
              file);
  check_input(document_indices_count_ <= (rest - 12 * sequences_) / 8,
              "{}: document count: {} document indices do not fit {} bytes", file, document_indices_count_,
              size);
  const uint64_t expected = kHeaderBytes + 12 * sequences_ + 8 * document_indices_count_;
  check_input(size == expected || size == expected + sequences_,
              "{}: size: {} bytes, but {} sequences and {} document indices need {}", file, size, sequences_,
              document_indices_count_, expected);
  lengths_ = data + kHeaderBytes;
  pointers_ = lengths_ + 4 * sequences_;
  document_indices_ = pointers_ + 8 * sequences_;
  if (size != expected) modes_ = document_indices_ + 8 * document_indices_count_;

  const uint64_t item = token_bytes(type_);
  const uint64_t bin_size = bin_.size();
  check_input(bin_size % item == 0, "{}: size: {} bytes are not whole {} tokens", bin_.path().string(),
              bin_size, name(type_));
  for (uint64_t s = 0; s < sequences_; ++s) {
    const auto length = load<int32_t>(lengths_, s);
    const auto pointer = load<int64_t>(pointers_, s);
    check_input(length >= 0, "{}: sequence length {}: {} is negative", file, s, length);
    check_input(pointer >= 0 && static_cast<uint64_t>(pointer) % item == 0,
                "{}: sequence pointer {}: {} is not the offset of a token", file, s, pointer);
    const uint64_t bytes = static_cast<uint64_t>(length) * item;
    check_input(
        static_cast<uint64_t>(pointer) <= bin_size && bytes <= bin_size - static_cast<uint64_t>(pointer),
        "{}: sequence pointer {}: {} tokens from byte {} on do not fit {} of {} bytes", file, s, length,
        pointer, bin_.path().string(), bin_size);
    tokens_ += static_cast<uint64_t>(length);
  }
  uint64_t previous = 0;
  for (uint64_t d = 0; d < document_indices_count_; ++d) {
    const auto index = load<int64_t>(document_indices_, d);
    check_input(index >= 0 && static_cast<uint64_t>(index) <= sequences_,
                "{}: document index {}: {} is outside 0 to {}", file, d, index, sequences_);
    check_input(d > 0 || index == 0, "{}: document index 0: {} instead of 0", file, index);
    check_input(static_cast<uint64_t>(index) >= previous,
                "{}: document index {}: {} is below its predecessor {}", file, d, index, previous);
    // A document is read as one run of tokens.
    for (uint64_t s = previous + 1; s < static_cast<uint64_t>(index); ++s) {
      check_input(sequence_pointer(s) == sequence_pointer(s - 1) + sequence_length(s - 1) * item,
                  "{}: sequence pointer {}: {} does not follow sequence {} of the same document", file, s,
                  sequence_pointer(s), s - 1);
    }
    previous = static_cast<uint64_t>(index);
  }
  check_input(previous == sequences_, "{}: document index {}: the last one is {}, but there are {} sequences",
              file, document_indices_count_ - 1, previous, sequences_);
}

uint64_t IndexedDataset::sequence_length(uint64_t sequence) const {
  return static_cast<uint64_t>(load<int32_t>(lengths_, sequence));
}

uint64_t IndexedDataset::sequence_pointer(uint64_t sequence) const {
  return static_cast<uint64_t>(load<int64_t>(pointers_, sequence));
}

uint64_t IndexedDataset::document_index(uint64_t index) const {
  return static_cast<uint64_t>(load<int64_t>(document_indices_, index));
}

uint64_t IndexedDataset::document_length(uint64_t document) const {
  const uint64_t first = document_index(document), last = document_index(document + 1);
  if (first == last) return 0;
  // The sequences of a document follow each other.
  return (sequence_pointer(last - 1) - sequence_pointer(first)) / token_bytes(type_) +
         sequence_length(last - 1);
}

void IndexedDataset::read_bytes(uint64_t pointer, std::span<int32_t> out) const {
  const std::byte* from = bin_.data() + pointer;
  if (type_ == TokenType::int32) {
    std::memcpy(out.data(), from, out.size_bytes());
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] = load<uint16_t>(from, i);
  }
}

void IndexedDataset::read_document(uint64_t document, uint64_t offset, std::span<int32_t> out) const {
  check(document < documents() && offset <= document_length(document) &&
            out.size() <= document_length(document) - offset,
        "{}: {} tokens from {} on of document {} are outside the dataset", prefix_.string(), out.size(),
        offset, document);
  if (out.empty()) return;
  read_bytes(sequence_pointer(document_index(document)) + offset * token_bytes(type_), out);
}

void IndexedDataset::read_sequence(uint64_t sequence, uint64_t offset, std::span<int32_t> out) const {
  check(sequence < sequences_ && offset <= sequence_length(sequence) &&
            out.size() <= sequence_length(sequence) - offset,
        "{}: {} tokens from {} on of sequence {} are outside the dataset", prefix_.string(), out.size(),
        offset, sequence);
  if (out.empty()) return;
  read_bytes(sequence_pointer(sequence) + offset * token_bytes(type_), out);
}

std::vector<int32_t> IndexedDataset::sequence(uint64_t sequence) const {
  check(sequence < sequences_, "{}: there is no sequence {}", prefix_.string(), sequence);
  std::vector<int32_t> tokens(sequence_length(sequence));
  read_sequence(sequence, 0, tokens);
  return tokens;
}

std::vector<int32_t> IndexedDataset::document(uint64_t document) const {
  check(document < documents(), "{}: there is no document {}", prefix_.string(), document);
  std::vector<int32_t> tokens(document_length(document));
  read_document(document, 0, tokens);
  return tokens;
}

}  // namespace megalith
