// Byte-pair encoding of one piece: starting from its bytes, the adjacent pair of the lowest rank (leftmost
// among equals) is joined until no pair has a merge.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megalith/text/model.h"

namespace megalith {

/// What joining a pair gives.
struct Merge {
  uint32_t rank = 0;
  int32_t id = -1;
};

/// Pairs of ids and their merges: a hash table with open addressing.
class MergeTable {
 public:
  explicit MergeTable(size_t expected = 0);
  /// A pair that is there already takes the new merge.
  void insert(int32_t left, int32_t right, Merge merge);
  /// Null when the pair has no merge.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = hash(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return &slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return nullptr;
    }
  }
  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // No pair: ids are not negative.
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  static size_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(key ^ (key >> 32));
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

/// Bytes of all tokens in one block, and a look-up of ids by bytes.
class PieceTable {
 public:
  /// Makes room for ids 0 ... ids-1, none of which has bytes yet.
  explicit PieceTable(int64_t ids = 0);
  void set(int32_t id, std::string_view bytes);
  /// Makes room for the bytes of all tokens.
  void reserve(size_t bytes) { block_.reserve(bytes); }
  /// Makes set() pieces findable; of equal bytes the first given one is found.
  void index(int32_t id);
  std::string_view bytes(int32_t id) const {
    const Entry& entry = entries_[static_cast<size_t>(id)];
    return {block_.data() + entry.offset, entry.length};
  }
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() && entries_[static_cast<size_t>(id)].present;
  }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  /// -1 when no indexed piece has these bytes.
  int32_t find(std::string_view bytes) const;

 private:
  struct Entry {
    uint64_t offset = 0;
    uint32_t length = 0;
    bool present = false;
  };
  std::vector<char> block_;
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;
};

/// Byte-level: the symbols are bytes.
class BpeModel final : public Model {
 public:
  explicit BpeModel(const PieceTable& pieces) : pieces_(pieces) { byte_ids.fill(-1); }

  /// -1 for a byte that has no token: it is left out of the text before anything is joined, as the tokenizers
  /// library does (some vocabularies lack bytes that their training text did not have).
  std::array<int32_t, 256> byte_ids;
  MergeTable merges;
  /// A piece that is in the vocabulary becomes its id, whatever the merges give.
  bool ignore_merges = false;

  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
              std::vector<TokenRange>* ranges) const override;
  void encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const override {
    encode(bytes, scratch, ids, ranges);
  }

 private:
  void encode_short(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) const;

  const PieceTable& pieces_;
};

}  // namespace megalith
