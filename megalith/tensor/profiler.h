// Time, floating-point operations and bytes of the parts of a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megalith {

/// What a part of a step spent. Scopes are leaves: they do not nest, so that the parts add up to the measured
/// time.
struct ProfileEntry {
  std::string_view part;
  double seconds = 0;
  uint64_t calls = 0;
  double flops = 0;
};

class Profiler {
 public:
  void add(std::string_view part, double seconds, double flops);
  const std::vector<ProfileEntry>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  std::vector<ProfileEntry> entries_;  // A dozen parts: a linear search is fastest.
};

}  // namespace megalith
