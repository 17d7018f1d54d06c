// The live line of a training run on a terminal, plain lines elsewhere; on standard error.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/base/progress.h"
#include "megalith/train/run_log.h"

namespace megalith {

/// "12,345".
std::string format_count(int64_t value);

class ProgressDisplay {
 public:
  ProgressDisplay();

  /// A step is done. `share_of_peak` below 0 is not shown; `seconds_left` too. Only steps with `logged` make
  /// a plain line.
  void step(const TrainingRecord& record, int64_t total_steps, double share_of_peak, double seconds_left,
            bool logged);
  /// A line that stays, above the live one.
  void message(const std::string& text);
  /// Ends the live line.
  void finish();

 private:
  void clear();

  bool terminal_;
  size_t shown_ = 0;
  std::string live_;
};

}  // namespace megalith
