// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace megalith {

/// Filters apply in this order: repetition penalty, temperature, top-k, top-p, min-p.
struct SamplingOptions {
  /// 0 is greedy. Logits are divided by it.
  double temperature = 1.0;
  /// Only the k most likely tokens stay; 0 is off.
  int64_t top_k = 0;
  /// Only the most likely tokens whose probabilities sum to p stay, at least one; 1 is off.
  double top_p = 1.0;
  /// Only tokens with at least this share of the most likely one's probability stay; 0 is off.
  double min_p = 0.0;
  /// Logits of tokens that occurred before are divided by it when positive, multiplied when negative (Keskar
  /// et al. 2019).
  double repetition_penalty = 1.0;
  uint64_t seed = 0;

  /// Throws InputError naming the option and its range.
  void validate() const;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);

  /// The token for position `position` of a sequence: a pure function of the options, the logits, the history
  /// and the position. Equal logits are taken by lowest id. Throws Error when a logit is NaN
  /// or the largest is not finite.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history, uint64_t position);

 private:
  SamplingOptions options_;
  std::vector<float> adjusted_;
  std::vector<std::pair<float, int32_t>> candidates_;
  std::vector<double> probabilities_;
};

}  // namespace megalith
