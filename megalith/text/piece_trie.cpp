#include "megalith/text/piece_trie.h"

#include <algorithm>
#include <bit>

#include "megalith/base/error.h"

namespace megalith {

PieceTrie::PieceTrie(size_t bytes)
    : root_(256, 0), slots_(std::bit_ceil(std::max<size_t>(16, bytes))), mask_(slots_.size() - 1) {}

void PieceTrie::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key == 0) continue;
    size_t at = hash(slot.key) & mask_;
    while (slots_[at].key != 0) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

void PieceTrie::insert(std::string_view text, int32_t value) {
  uint32_t node = 0;
  for (const char byte : text) {
    const uint32_t found = child(node, byte);
    if (found != 0) {
      node = found;
      continue;
    }
    check_input(values_.size() < kMaximumNodes,
                "a vocabulary of more than {} different prefixes is too large", kMaximumNodes);
    const auto fresh = static_cast<uint32_t>(values_.size());
    values_.push_back(-1);
    if (node == 0) {
      root_[static_cast<unsigned char>(byte)] = fresh;
    } else {
      if ((edges_ + 1) * 2 > slots_.size()) grow();
      const uint32_t key = (node << 8) | static_cast<unsigned char>(byte);
      size_t slot = hash(key) & mask_;
      while (slots_[slot].key != 0) slot = (slot + 1) & mask_;
      slots_[slot] = {key, fresh};
      ++edges_;
    }
    node = fresh;
  }
  if (values_[node] < 0) values_[node] = value;
}

}  // namespace megalith
