#include "megalith/tensor/profiler.h"

namespace megalith {

void Profiler::add(std::string_view part, double seconds, double flops) {
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
