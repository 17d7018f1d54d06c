#include "megalith/tensor/profiler.h"

namespace megalith {

void Profiler::add(std::string_view part, double seconds, double flops) {
  if (progress_ != nullptr) progress_->fetch_add(1, std::memory_order_relaxed);
  if (trace_ != nullptr) {
    const auto end = Trace::Clock::now();
    const auto length =
        std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double>(seconds));
    trace_->add(part, Trace::Track::operations, end - length, end);
  }
  for (ProfileEntry& entry : entries_) {
    if (entry.part != part) continue;
    entry.seconds += seconds;
    entry.calls += 1;
    entry.flops += flops;
    return;
  }
  entries_.push_back({part, seconds, 1, flops});
}

}  // namespace megalith
