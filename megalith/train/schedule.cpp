#include "megalith/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megalith {

LearningRateSchedule::LearningRateSchedule(const Recipe& recipe)
    : type_(recipe.schedule.type),
      peak_(recipe.optimizer.learning_rate),
      least_(recipe.schedule.min_learning_rate),
      length_(static_cast<double>(recipe.length())) {
  const ScheduleConfig& s = recipe.schedule;
  // At most one unit is set (Recipe::resolve).
  warmup_ = static_cast<double>(s.warmup_steps + s.warmup_samples + s.warmup_tokens);
  decay_ = static_cast<double>(s.decay_steps + s.decay_samples + s.decay_tokens);
  if (decay_ == 0) decay_ = type_ == ScheduleType::warmup_stable_decay ? length_ / 10 : length_;
}

double LearningRateSchedule::at(double position) const {
  if (position < warmup_) return peak_ * position / warmup_;
  const double x = decay_ > warmup_ ? std::clamp((position - warmup_) / (decay_ - warmup_), 0.0, 1.0) : 1.0;
  switch (type_) {
    case ScheduleType::constant:
      return peak_;
    case ScheduleType::linear:
      return least_ + (peak_ - least_) * (1 - x);
    case ScheduleType::cosine:
      return least_ + (peak_ - least_) * 0.5 * (1 + std::cos(std::numbers::pi * x));
    case ScheduleType::inverse_sqrt:
      return std::max(least_, peak_ * std::sqrt(std::max(warmup_, 1.0) / std::max(position, 1.0)));
    case ScheduleType::warmup_stable_decay: {
      const double into_decay = std::clamp((position - (length_ - decay_)) / decay_, 0.0, 1.0);
      return peak_ + (least_ - peak_) * into_decay;
    }
  }
  return peak_;
}

BatchRamp::BatchRamp(const Recipe& recipe)
    : full_(recipe.train.global_batch),
      start_(recipe.train.batch_ramp_start),
      increment_(recipe.train.batch_ramp_increment),
      ramp_samples_(static_cast<double>(recipe.train.batch_ramp_samples)) {
  if (recipe.train.batch_ramp_tokens > 0) {
    ramp_samples_ = static_cast<double>(recipe.train.batch_ramp_tokens) /
                    static_cast<double>(recipe.data.sequence_length);
  }
}

int64_t BatchRamp::at(int64_t consumed_samples) const {
  if (start_ == 0 || start_ == full_ || static_cast<double>(consumed_samples) > ramp_samples_) return full_;
  const int64_t stages = (full_ - start_) / increment_;
  const double samples_per_stage = ramp_samples_ / static_cast<double>(stages);
  const int64_t stage = static_cast<int64_t>(static_cast<double>(consumed_samples) / samples_per_stage);
  return std::min(start_ + stage * increment_, full_);
}

}  // namespace megalith
