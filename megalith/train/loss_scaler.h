// Dynamic loss scaling for fp16 (Micikevicius et al. 2018): small gradients are kept from vanishing by
// multiplying the loss.
#pragma once

#include <cstdint>

namespace megalith {

struct LossScalerOptions {
  double start = 65536, floor = 1;
  int64_t interval = 1000;
  /// Overflows in a row at the floor after which there is no hope.
  int64_t patience = 20;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options) : options_(options), scale_(options.start) {}

  double scale() const { return scale_; }
  /// A step without overflow: after `interval` of them in a row the scale doubles.
  void step_succeeded() {
    floor_overflows_ = 0;
    if (++clean_steps_ < options_.interval) return;
    scale_ *= 2;
    clean_steps_ = 0;
  }
  /// A step whose gradients overflowed: the scale is halved, not below the floor. False when the floor has
  /// failed too often.
  bool step_overflowed() {
    clean_steps_ = 0;
    if (scale_ <= options_.floor) return ++floor_overflows_ < options_.patience;
    scale_ = scale_ / 2 > options_.floor ? scale_ / 2 : options_.floor;
    return true;
  }

  /// For checkpoints.
  struct State {
    double scale = 1;
    int64_t clean_steps = 0, floor_overflows = 0;
  };
  State state() const { return {scale_, clean_steps_, floor_overflows_}; }
  void restore(const State& state) {
    scale_ = state.scale;
    clean_steps_ = state.clean_steps;
    floor_overflows_ = state.floor_overflows;
  }

 private:
  LossScalerOptions options_;
  double scale_;
  int64_t clean_steps_ = 0;
  int64_t floor_overflows_ = 0;
};

}  // namespace megalith
