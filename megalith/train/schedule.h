// Learning rate and batch size as functions of how far the run is.
#pragma once

#include <cstdint>

#include "megalith/train/recipe.h"

namespace megalith {

/// Learning rate at position p (1 is the first update; in steps, samples or tokens consumed including the
/// update's own).
///
/// Warm-up: peak * p / warmup. After it, with x = (p - warmup) / (end - warmup) in [0, 1]: constant peak;
/// linear min + (peak - min)(1 - x); cosine min + (peak - min)(1 + cos(pi x)) / 2; inverse square root peak *
/// sqrt(warmup / p), not below min; warm-up-stable-decay: peak until `decay` before the end, then linear to
/// min.
class LearningRateSchedule {
 public:
  explicit LearningRateSchedule(const Recipe& recipe);
  double at(double position) const;

 private:
  ScheduleType type_;
  double peak_, least_, warmup_, decay_, length_;
};

/// Global batch size by samples consumed, as Megatron-LM ramps it: start + increment * floor(consumed / (ramp
/// / stages)), the full batch once the ramp is consumed.
class BatchRamp {
 public:
  explicit BatchRamp(const Recipe& recipe);
  int64_t at(int64_t consumed_samples) const;

 private:
  int64_t full_, start_, increment_;
  double ramp_samples_;
};

}  // namespace megalith
