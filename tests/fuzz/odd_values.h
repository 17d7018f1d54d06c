// Where a mutator's choices come from: random numbers, and values that parsers stumble over.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "megalith/base/random.h"

namespace megalith::fuzz {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t state) : state_(state) {}
  uint64_t word() { return mix64(state_++, 0x5bd1e995); }
  /// In [0, below).
  size_t below(size_t below) { return static_cast<size_t>(word() % below); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class List>
  const auto& of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  uint64_t state_;
};

/// Powers of two and their neighbours.
std::span<const uint64_t> odd_numbers();
std::span<const double> odd_reals();
/// Parts of regular expressions, templates and names among them: what means something to a parser.
std::span<const std::string> odd_texts();

}  // namespace megalith::fuzz
