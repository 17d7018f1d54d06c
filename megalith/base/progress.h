// A line that tells how far a long task is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace megalith {

/// How amounts are written.
enum class ProgressUnit { count, bytes };

/// Writes to standard error: on a terminal one live line (done, share, rate, time left), else a plain line
/// now and then. Shows nothing for tasks that are over within half a second.
class Progress {
 public:
  /// `total` 0: unknown.
  Progress(std::string title, ProgressUnit unit, uint64_t total = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Clears the live line.
  ~Progress();

  /// The amount done so far. Cheap enough to be called often; not for several threads at once.
  void update(uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(uint64_t done, double seconds) const;

  std::string title_;
  ProgressUnit unit_;
  uint64_t total_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_;
  Clock::time_point next_;
};

/// "1.5 GB", "12.3 MB", "980 B": powers of 1000.
std::string format_bytes(uint64_t bytes);
/// "2 h 05 min", "3 min 20 s", "12 s".
std::string format_duration(double seconds);

}  // namespace megalith
