// Where a run is: everything besides tensors that a resumed run needs to go on bit for bit.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/train/loss_scaler.h"

namespace megalith {

struct TrainingState {
  /// Steps done, those that fp16 overflow skipped included.
  int64_t step = 0;
  /// Updates made: steps that were not skipped. Bias correction and the schedule count these.
  int64_t updates = 0;
  /// Samples read; the next batch begins here.
  int64_t consumed_samples = 0;
  /// Samples of the steps that were not skipped, for schedules in samples and tokens.
  int64_t scheduled_samples = 0;
  LossScaler::State loss_scaler;

  std::string to_json() const;
  /// Throws InputError naming `where` when a member is missing.
  static TrainingState from_json(const std::string& text, const std::string& where);
};

}  // namespace megalith
