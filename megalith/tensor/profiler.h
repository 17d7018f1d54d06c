// Time, floating-point operations and bytes of the parts of a step.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megalith/tensor/trace.h"

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
  /// A part that has just ended.
  void add(std::string_view part, double seconds, double flops);
  const std::vector<ProfileEntry>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

  /// From now on every part also goes to `trace`, which may be null.
  void set_trace(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }
  /// From now on `counter` grows with every part, so that others can see that this thread gets on.
  void set_progress(std::atomic<uint64_t>* counter) { progress_ = counter; }

 private:
  std::vector<ProfileEntry> entries_;  // A dozen parts: a linear search is fastest.
  Trace* trace_ = nullptr;
  std::atomic<uint64_t>* progress_ = nullptr;
};

}  // namespace megalith
