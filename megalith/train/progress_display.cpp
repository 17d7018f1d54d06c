#include "megalith/train/progress_display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "megalith/base/log.h"

namespace megalith {

namespace {

size_t terminal_columns() {
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

std::string format_count(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

ProgressDisplay::ProgressDisplay() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void ProgressDisplay::step(const TrainingRecord& r, int64_t total_steps, double share_of_peak,
                           double seconds_left, bool logged) {
  if (!terminal_ && !logged) return;
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  {} tok/s", r.step, total_steps, r.loss,
                                 r.learning_rate, format_count(static_cast<int64_t>(r.tokens_per_second)));
  if (share_of_peak >= 0) line += fmt::format("  {:.0f}% of peak", 100 * share_of_peak);
  line += "  " + format_bytes(r.peak_memory_bytes);
  if (seconds_left >= 0) line += fmt::format("  {} left", format_duration(seconds_left));
  if (!terminal_) {
    log_line("", line);
    return;
  }
  line = line.substr(0, terminal_columns() - 1);
  std::string out = "\r" + line;
  if (line.size() < shown_) out.append(shown_ - line.size(), ' ');
  shown_ = line.size();
  live_ = line;
  std::fwrite(out.data(), 1, out.size(), stderr);
  std::fflush(stderr);
}

void ProgressDisplay::clear() {
  if (!terminal_ || shown_ == 0) return;
  const std::string blank = "\r" + std::string(shown_, ' ') + "\r";
  std::fwrite(blank.data(), 1, blank.size(), stderr);
  shown_ = 0;
}

void ProgressDisplay::message(const std::string& text) {
  clear();
  log_line("", text);
}

void ProgressDisplay::finish() {
  if (terminal_ && shown_ > 0) std::fputc('\n', stderr);
  shown_ = 0;
}

}  // namespace megalith
