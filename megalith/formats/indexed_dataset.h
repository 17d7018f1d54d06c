// Megatron-LM's token datasets: PREFIX.bin holds tokens, PREFIX.idx says where sequences and documents lie.
//
// PREFIX.idx, little endian, packed: "MMIDIDX\0\0", u64 version 1, u8 dtype code, u64 S sequences, u64 D
// document indices, i32[S] sequence lengths in tokens, i64[S] byte offsets in PREFIX.bin, i64[D] document
// indices (0, then one past each document's last sequence), and i8[S] modes when the file is S bytes longer
// than that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megalith/base/file.h"

namespace megalith {

/// Token types that datasets are written in; the values are Megatron's codes.
enum class TokenType : uint8_t { int32 = 4, uint16 = 8 };

inline size_t token_bytes(TokenType type) {
  return type == TokenType::uint16 ? 2 : 4;
}
/// Megatron's rule: uint16 for fewer than 65500 ids, else int32.
inline TokenType optimal_token_type(int64_t vocabulary_size) {
  return vocabulary_size < 65500 ? TokenType::uint16 : TokenType::int32;
}
std::string_view name(TokenType type);

/// Writes PREFIX.bin and PREFIX.idx, byte-equal to Megatron's IndexedDatasetBuilder. Until finish() the data
/// lie in PREFIX.bin.partial; an unfinished writer removes it.
class IndexedDatasetWriter {
 public:
  /// Throws Error when the file cannot be made.
  IndexedDatasetWriter(std::filesystem::path prefix, TokenType type);
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;
  ~IndexedDatasetWriter();

  /// Adds a sequence to the current document. Throws InputError for an id that the type cannot hold and for a
  /// sequence of more than 2^31 - 1 tokens; Error when writing fails.
  void add_sequence(std::span<const int32_t> tokens);
  void end_document();
  /// One document of one sequence.
  void add_document(std::span<const int32_t> tokens) {
    add_sequence(tokens);
    end_document();
  }
  /// Appends a whole dataset, documents kept. Throws InputError when its type differs or it is damaged.
  void add_index(const std::filesystem::path& other_prefix);

  /// Writes the index and renames both files into place, the index last. A prefix whose .idx exists is whole.
  void finish();

  uint64_t sequences() const { return lengths_.size(); }
  uint64_t documents() const { return document_indices_.size() - 1; }
  uint64_t tokens() const { return bytes_ / token_bytes(type_); }

 private:
  std::filesystem::path prefix_;
  TokenType type_;
  std::optional<OutputFile> bin_;
  uint64_t bytes_ = 0;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> pointers_;
  std::vector<int64_t> document_indices_ = {0};
  std::vector<char> encoded_;
};

/// A dataset mapped into memory. Everything is validated on opening, so that no access can leave the files.
class IndexedDataset {
 public:
  /// Throws InputError naming the file and the field that is missing or wrong.
  explicit IndexedDataset(std::filesystem::path prefix);

  const std::filesystem::path& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  uint64_t sequences() const { return sequences_; }
  uint64_t documents() const { return document_indices_count_ - 1; }
  uint64_t tokens() const { return tokens_; }
  bool has_modes() const { return modes_ != nullptr; }

  uint64_t sequence_length(uint64_t sequence) const;
  /// Offset in PREFIX.bin, in bytes.
  uint64_t sequence_pointer(uint64_t sequence) const;
  int8_t sequence_mode(uint64_t sequence) const { return static_cast<int8_t>(modes_[sequence]); }
  /// Entry `index` of the document indices, 0 <= index <= documents().
  uint64_t document_index(uint64_t index) const;
  /// Tokens of a document, all its sequences together (they follow each other in the file).
  uint64_t document_length(uint64_t document) const;

  /// Copies out.size() tokens of the document from token `offset` on. The range must lie inside the document.
  void read_document(uint64_t document, uint64_t offset, std::span<int32_t> out) const;
  void read_sequence(uint64_t sequence, uint64_t offset, std::span<int32_t> out) const;
  std::vector<int32_t> sequence(uint64_t sequence) const;
  std::vector<int32_t> document(uint64_t document) const;

 private:
  friend class IndexedDatasetWriter;
  void read_bytes(uint64_t pointer, std::span<int32_t> out) const;

  std::filesystem::path prefix_;
  MappedFile index_;
  MappedFile bin_;
  TokenType type_ = TokenType::int32;
  uint64_t sequences_ = 0;
  uint64_t document_indices_count_ = 1;
  uint64_t tokens_ = 0;
  const std::byte* lengths_ = nullptr;
  const std::byte* pointers_ = nullptr;
  const std::byte* document_indices_ = nullptr;
  const std::byte* modes_ = nullptr;
};

/// PREFIX + ".bin" and ".idx" (a plain append: "a.b" gives "a.b.bin").
std::filesystem::path bin_path(const std::filesystem::path& prefix);
std::filesystem::path idx_path(const std::filesystem::path& prefix);

}  // namespace megalith
