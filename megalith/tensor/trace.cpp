#include "megalith/tensor/trace.h"

#include <fmt/format.h>

namespace megalith {

void Trace::add(std::string_view name, Track track, Clock::time_point start, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < kMostEvents) events_.push_back({name, track, start, end});
}

std::string Trace::to_json(int process) const {
  const std::lock_guard lock(mutex_);
  std::string text = fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})",
                                 process, process);
  constexpr const char* kTracks[] = {"passes", "operations", "communication"};
  for (int track = 0; track < 3; ++track) {
    text += fmt::format(
        ",\n"
        R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
        process, track, kTracks[track]);
  }
  const auto microseconds = [](auto duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
  };
  for (const Event& event : events_) {
    text += fmt::format(
        ",\n"
        R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
        event.name, process, static_cast<int>(event.track), microseconds(event.start.time_since_epoch()),
        microseconds(event.end - event.start));
  }
  return text;
}

}  // namespace megalith
