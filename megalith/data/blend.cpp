#include "megalith/data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megalith/base/error.h"

namespace megalith {

namespace {
constexpr uint64_t kKeepEvery = 4096;
}

Blend::Blend(std::vector<double> weights) : weights_(std::move(weights)) {
  check_input(!weights_.empty(), "a blend needs at least one dataset");
  for (const double weight : weights_) {
    check_input(std::isfinite(weight) && weight >= 0, "dataset weight {}: must be at least 0", weight);
  }
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  check_input(sum > 0 && std::isfinite(sum), "dataset weights: their sum is {}, and must be above 0", sum);
  for (double& weight : weights_) weight /= sum;
  cursor_.counts.resize(weights_.size());
  kept_.push_back(cursor_);
}

uint32_t Blend::choose(const State& state) const {
  const double taken = std::max(static_cast<double>(state.index), 1.0);
  size_t best = weights_.size();
  double best_error = 0;
  for (size_t d = 0; d < weights_.size(); ++d) {
    if (weights_[d] == 0) continue;
    const double error = weights_[d] * taken - static_cast<double>(state.counts[d]);
    if (best == weights_.size() || error > best_error) {
      best = d;
      best_error = error;
    }
  }
  return static_cast<uint32_t>(best);
}

Blend::Pick Blend::at(uint64_t index) const {
  if (weights_.size() == 1) return {0, index};
  const std::lock_guard lock(mutex_);
  // The nearest known state at or before the index: the cursor, or one of those kept.
  const uint64_t nearest = std::min<uint64_t>(index / kKeepEvery, kept_.size() - 1);
  if (cursor_.index > index || kept_[nearest].index > cursor_.index) cursor_ = kept_[nearest];
  while (true) {
    const uint32_t dataset = choose(cursor_);
    const Pick pick{dataset, cursor_.counts[dataset]};
    const bool done = cursor_.index == index;
    ++cursor_.counts[dataset];
    ++cursor_.index;
    if (cursor_.index == kept_.size() * kKeepEvery) kept_.push_back(cursor_);
    if (done) return pick;
  }
}

}  // namespace megalith
