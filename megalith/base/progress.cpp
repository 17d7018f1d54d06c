#include "megalith/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "megalith/base/log.h"

namespace megalith {

namespace {
constexpr std::chrono::milliseconds kFirst(500);
constexpr std::chrono::milliseconds kLive(100);
constexpr std::chrono::seconds kPlain(10);

std::string format_amount(ProgressUnit unit, double amount) {
  if (unit == ProgressUnit::bytes) return format_bytes(static_cast<uint64_t>(amount));
  return amount < 100 ? fmt::format("{:.3g}", amount) : fmt::format("{:.0f}", amount);
}
}  // namespace

std::string format_bytes(uint64_t bytes) {
  constexpr const char* units[] = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.95 && unit < 4; ++unit) value /= 1000;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string format_duration(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

Progress::Progress(std::string title, ProgressUnit unit, uint64_t total)
    : title_(std::move(title)),
      unit_(unit),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_(start_ + (terminal_ ? Clock::duration(kFirst) : Clock::duration(kPlain))) {}

Progress::~Progress() {
  // Back to the begin of the line, and erase it.
  if (shown_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

std::string Progress::line(uint64_t done, double seconds) const {
  std::string text = fmt::format("{}: {}", title_, format_amount(unit_, static_cast<double>(done)));
  if (total_ > 0) {
    text += fmt::format(" of {} ({:.0f} %)", format_amount(unit_, static_cast<double>(total_)),
                        100.0 * static_cast<double>(done) / static_cast<double>(total_));
  }
  if (seconds > 0) text += fmt::format(", {}/s", format_amount(unit_, static_cast<double>(done) / seconds));
  if (total_ > done && done > 0) {
    text += fmt::format(", {} left", format_duration(seconds * static_cast<double>(total_ - done) /
                                                     static_cast<double>(done)));
  }
  return text;
}

void Progress::update(uint64_t done) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(kLive) : Clock::duration(kPlain));
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (terminal_) {
    std::fputs(fmt::format("\r\x1b[K{}", line(done, seconds)).c_str(), stderr);
  } else {
    log_info("{}", line(done, seconds));
  }
  shown_ = true;
}

}  // namespace megalith
