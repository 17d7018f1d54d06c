#include "megalith/text/bpe_model.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "megalith/base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace megalith {

namespace {

// Up to this many bytes the quadratic merge in registers and cache is faster than a heap.
constexpr size_t kShortPiece = 48;
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

size_t slots_for(size_t entries) {
  return std::bit_ceil(std::max<size_t>(16, entries * 2));
}

}  // namespace

MergeTable::MergeTable(size_t expected) : slots_(slots_for(expected)), mask_(slots_.size() - 1) {}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  if ((size_ + 1) * 2 > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) {
        insert(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key & 0xFFFFFFFFu),
               slot.merge);
      }
    }
  }
  const uint64_t key = key_of(left, right);
  size_t slot = hash(key) & mask_;
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) ++size_;
  slots_[slot] = {key, merge};
}

PieceTable::PieceTable(int64_t ids)
    : entries_(static_cast<size_t>(ids)), slots_(slots_for(static_cast<size_t>(ids)), -1) {}

void PieceTable::set(int32_t id, std::string_view bytes) {
  check(bytes.size() <= std::numeric_limits<uint32_t>::max(), "token {}: its text is too long", id);
  entries_[static_cast<size_t>(id)] = {block_.size(), static_cast<uint32_t>(bytes.size()), true};
  block_.insert(block_.end(), bytes.begin(), bytes.end());
}

void PieceTable::index(int32_t id) {
  const std::string_view text = bytes(id);
  size_t slot = XXH3_64bits(text.data(), text.size()) & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (bytes(slots_[slot]) == text) return;
  }
  slots_[slot] = id;
}

int32_t PieceTable::find(std::string_view text) const {
  size_t slot = XXH3_64bits(text.data(), text.size()) & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (bytes(slots_[slot]) == text) return slots_[slot];
  }
  return -1;
}

void BpeModel::encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const {
  const size_t first = ids.size();
  const int32_t whole = ignore_merges ? pieces_.find(piece) : -1;
  if (whole >= 0) {
    ids.push_back(whole);
  } else if (piece.size() <= kShortPiece) {
    encode_short(piece, scratch, ids);
  } else {
    encode_long(piece, scratch, ids);
  }
  if (ranges == nullptr) return;
  // Bytes without a token are left out, which only the vocabularies that lack some do; their places are then
  // counted to the tokens before.
  uint32_t at = 0;
  for (size_t i = first; i < ids.size(); ++i) {
    const auto length = static_cast<uint32_t>(pieces_.bytes(ids[i]).size());
    ranges->push_back({at, at + length});
    at += length;
  }
}

void BpeModel::encode_short(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  std::array<int32_t, kShortPiece> symbols;
  std::array<Merge, kShortPiece> joined;  // joined[i]: of symbols i and i + 1.
  size_t size = 0;
  const auto look_up = [&](size_t i) {
    const Merge* merge = merges.find(symbols[i], symbols[i + 1]);
    joined[i] = merge == nullptr ? Merge{kNoRank, -1} : *merge;
  };
  for (const char byte : piece) {
    const int32_t id = byte_ids[static_cast<unsigned char>(byte)];
    symbols[size] = id;
    size += id >= 0 ? 1 : 0;
  }
  scratch.dropped_bytes += piece.size() - size;
  for (size_t i = 0; i + 1 < size; ++i) look_up(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (joined[i].rank < joined[best].rank) best = i;
    }
    if (joined[best].rank == kNoRank) break;
    symbols[best] = joined[best].id;
    for (size_t i = best + 1; i + 1 < size; ++i) {
      symbols[i] = symbols[i + 1];
      joined[i] = joined[i + 1];
    }
    --size;
    if (best > 0) look_up(best - 1);
    if (best + 1 < size) look_up(best);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(size));
}

void BpeModel::encode_long(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  nodes.clear();
  heap.clear();
  for (const char byte : piece) {
    const int32_t id = byte_ids[static_cast<unsigned char>(byte)];
    const auto i = static_cast<int64_t>(nodes.size());
    if (id >= 0) nodes.push_back({id, i - 1, i + 1});
  }
  const auto size = static_cast<int64_t>(nodes.size());
  scratch.dropped_bytes += piece.size() - nodes.size();
  if (size == 0) return;
  nodes.back().next = -1;
  const auto later = [](const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto candidate_at = [&](int64_t position, ModelScratch::Candidate& candidate) {
    const auto& node = nodes[static_cast<size_t>(position)];
    if (node.next < 0) return false;
    const int32_t right = nodes[static_cast<size_t>(node.next)].id;
    const Merge* merge = merges.find(node.id, right);
    if (merge == nullptr) return false;
    candidate = {merge->rank, merge->id, position, node.id, right};
    return true;
  };
  ModelScratch::Candidate candidate{};
  for (int64_t i = 0; i + 1 < size; ++i) {
    if (candidate_at(i, candidate)) heap.push_back(candidate);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const ModelScratch::Candidate top = heap.back();
    heap.pop_back();
    auto& node = nodes[static_cast<size_t>(top.position)];
    // Out of date when either side has been joined to something since.
    if (node.id != top.left || node.next < 0 || nodes[static_cast<size_t>(node.next)].id != top.right)
      continue;
    auto& gone = nodes[static_cast<size_t>(node.next)];
    node.id = top.id;
    node.next = gone.next;
    gone.id = -1;
    if (node.next >= 0) nodes[static_cast<size_t>(node.next)].previous = top.position;
    const auto push = [&](int64_t position) {
      if (candidate_at(position, candidate)) {
        heap.push_back(candidate);
        std::push_heap(heap.begin(), heap.end(), later);
      }
    };
    if (node.previous >= 0) push(node.previous);
    push(top.position);
  }
  for (int64_t i = 0; i >= 0; i = nodes[static_cast<size_t>(i)].next)
    ids.push_back(nodes[static_cast<size_t>(i)].id);
}

}  // namespace megalith
