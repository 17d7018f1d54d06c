// A tree of texts by their bytes: what a text begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megalith {

/// Node 0 is the root; the edges lie in one hash table with open addressing.
class PieceTrie {
 public:
  /// Room for edges is made for about `bytes` bytes of text in all.
  explicit PieceTrie(size_t bytes = 0);
  /// A text that is there already keeps its first value. Throws InputError beyond 2^24 nodes.
  void insert(std::string_view text, int32_t value);

  /// The child of a node, or 0.
  uint32_t child(uint32_t node, char byte) const {
    if (node == 0) return root_[static_cast<unsigned char>(byte)];
    const uint32_t key = (node << 8) | static_cast<unsigned char>(byte);
    for (size_t slot = hash(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].child;
      if (slots_[slot].key == 0) return 0;
    }
  }
  /// The value of the text that ends at a node, or -1.
  int32_t value(uint32_t node) const { return values_[node]; }
  bool empty() const { return values_.size() == 1; }

 private:
  static constexpr uint32_t kMaximumNodes = 1u << 24;
  struct Slot {
    uint32_t key = 0;  // No edge from a node other than the root has it.
    uint32_t child = 0;
  };
  static size_t hash(uint32_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> 32); }
  void grow();

  std::vector<uint32_t> root_;
  std::vector<Slot> slots_;
  std::vector<int32_t> values_ = {-1};
  size_t mask_ = 0;
  size_t edges_ = 0;
};

}  // namespace megalith
