// Weighted mixing of datasets by the greedy largest-error rule.
//
// Sample i comes from the dataset whose count so far lags furthest behind weight * max(i, 1) (ties: the first
// of them), as in Megatron-LM; datasets of weight 0 give none. Counts stay within 1 of weight * i for two
// datasets.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace megalith {

class Blend {
 public:
  struct Pick {
    uint32_t dataset = 0;
    /// How many samples that dataset gave before.
    uint64_t index = 0;
  };

  /// Weights are normalised to sum 1. Throws InputError when one is negative or not finite, or all are zero.
  explicit Blend(std::vector<double> weights);

  const std::vector<double>& weights() const { return weights_; }
  /// Sample `index` of the mixture. Cheap for indices in rising order; others start from the nearest of the
  /// states that are kept every few thousand samples. Safe to call from several threads.
  Pick at(uint64_t index) const;

 private:
  struct State {
    uint64_t index = 0;
    std::vector<uint64_t> counts;
  };
  uint32_t choose(const State& state) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable State cursor_;
  mutable std::vector<State> kept_;
};

}  // namespace megalith
