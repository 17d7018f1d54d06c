// Trace: when each part of a run took place, for a viewer of Chrome traces (chrome://tracing, Perfetto).
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  /// Lines of the picture, one below the other.
  enum class Track : uint8_t { passes, operations, communication };

  /// `name` must outlive the trace (a string literal). Beyond kMostEvents nothing more is kept. Any thread.
  void add(std::string_view name, Track track, Clock::time_point start, Clock::time_point end);

  /// The events as JSON objects of process `process`, separated by commas, with the names of the tracks.
  /// Times are those of the system's clock, so that processes of one host can be laid side by side.
  std::string to_json(int process) const;

  static constexpr size_t kMostEvents = size_t{1} << 18;

 private:
  struct Event {
    std::string_view name;
    Track track;
    Clock::time_point start, end;
  };
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// Records its life; `trace` may be null.
class TraceScope {
 public:
  TraceScope(Trace* trace, std::string_view name, Trace::Track track)
      : trace_(trace), name_(name), track_(track) {
    if (trace_ != nullptr) start_ = Trace::Clock::now();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    if (trace_ != nullptr) trace_->add(name_, track_, start_, Trace::Clock::now());
  }

 private:
  Trace* trace_;
  std::string_view name_;
  Trace::Track track_;
  Trace::Clock::time_point start_;
};

}  // namespace megalith
