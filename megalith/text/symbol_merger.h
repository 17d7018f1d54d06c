// Joins the symbols of a piece pair by pair: the pair of the lowest rank first, the leftmost among equals.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "megalith/text/bpe_model.h"
#include "megalith/text/model.h"

namespace megalith {

/// `find(left, right)` gives the merge of two neighbouring symbols, or one of rank kNoMerge. The symbols that
/// are left replace `scratch.symbols`. A heap makes long pieces take n log n steps.
inline constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();

template <class Find>
void merge_symbols(ModelScratch& scratch, const Find& find) {
  using Symbol = ModelScratch::Symbol;
  std::vector<Symbol>& symbols = scratch.symbols;
  const auto join = [](Symbol& left, const Symbol& right, int32_t id) {
    left.length += right.length;
    left.id = id;
  };
  constexpr size_t kShort = 32;
  if (symbols.size() <= kShort) {
    std::array<Merge, kShort> joined;  // joined[i]: of symbols i and i + 1.
    size_t size = symbols.size();
    for (size_t i = 0; i + 1 < size; ++i) joined[i] = find(symbols[i], symbols[i + 1]);
    while (size > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < size; ++i) {
        if (joined[i].rank < joined[best].rank) best = i;
      }
      if (joined[best].rank == kNoMerge) break;
      join(symbols[best], symbols[best + 1], joined[best].id);
      for (size_t i = best + 1; i + 1 < size; ++i) {
        symbols[i] = symbols[i + 1];
        joined[i] = joined[i + 1];
      }
      --size;
      if (best > 0) joined[best - 1] = find(symbols[best - 1], symbols[best]);
      if (best + 1 < size) joined[best] = find(symbols[best], symbols[best + 1]);
    }
    symbols.resize(size);
    return;
  }
  // Nodes link the symbols; a symbol that was joined to the one before has no length.
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  nodes.clear();
  heap.clear();
  const auto size = static_cast<int64_t>(symbols.size());
  for (int64_t i = 0; i < size; ++i) nodes.push_back({0, i - 1, i + 1 < size ? i + 1 : -1});
  const auto later = [](const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto symbol = [&](int64_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  const auto add = [&](int64_t at) {
    const int64_t next = nodes[static_cast<size_t>(at)].next;
    if (next < 0) return false;
    const Merge merge = find(symbol(at), symbol(next));
    if (merge.rank == kNoMerge) return false;
    // Lengths tell a candidate that is out of date: joining only makes symbols longer.
    heap.push_back({merge.rank, merge.id, at, static_cast<int32_t>(symbol(at).length),
                    static_cast<int32_t>(symbol(next).length)});
    return true;
  };
  for (int64_t i = 0; i + 1 < size; ++i) add(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const ModelScratch::Candidate top = heap.back();
    heap.pop_back();
    auto& node = nodes[static_cast<size_t>(top.position)];
    if (static_cast<int32_t>(symbol(top.position).length) != top.left || node.next < 0 ||
        static_cast<int32_t>(symbol(node.next).length) != top.right)
      continue;
    const int64_t gone = node.next;
    join(symbol(top.position), symbol(gone), top.id);
    symbol(gone).length = 0;
    node.next = nodes[static_cast<size_t>(gone)].next;
    if (node.next >= 0) nodes[static_cast<size_t>(node.next)].previous = top.position;
    if (node.previous >= 0 && add(node.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (add(top.position)) std::push_heap(heap.begin(), heap.end(), later);
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.length == 0; });
}

}  // namespace megalith
