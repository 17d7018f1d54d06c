// ExecContext: what an operation needs besides its operands. Passed first to every op and layer; there are no
// globals.
#pragma once

#include <chrono>
#include <string_view>

#include "megalith/tensor/arena.h"
#include "megalith/tensor/profiler.h"
#include "megalith/tensor/tensor.h"

namespace megalith {

struct ExecContext {
  /// Scratch of operations: each takes what it needs under an ArenaScope and leaves nothing behind.
  Arena& workspace;
  /// Threads that an operation may use.
  int threads = 1;
  /// Where time is booked; null when nobody asks.
  Profiler* profiler = nullptr;
  Device device = Device::cpu;
};

/// Books the time of a scope under a part of the step. `part` must outlive the profiler (a string literal).
class ProfileScope {
 public:
  ProfileScope(const ExecContext& context, std::string_view part, double flops = 0)
      : profiler_(context.profiler), part_(part), flops_(flops) {
    if (profiler_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  ~ProfileScope() {
    if (profiler_ == nullptr) return;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    profiler_->add(part_, elapsed.count(), flops_);
  }

 private:
  Profiler* profiler_;
  std::string_view part_;
  double flops_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace megalith
