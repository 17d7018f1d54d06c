// Frequencies of rotary embedding, and how they are stretched to contexts longer than those of the first
// training. The rules and their names are those of transformers' modeling_rope_utils.py.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/ops/rope.h"

namespace megalith {

/// linear: all frequencies over the factor (Chen et al. 2023). dynamic: a larger base for sequences beyond
/// the original length (NTK-aware). yarn: slow waves over the factor, fast ones as they are, a ramp between
/// (Peng et al. 2023). llama3: the same by wavelength (Llama 3.1). longrope: a divisor for each frequency,
/// one set for sequences within the original length and one for longer ones (Ding et al. 2024).
enum class RopeScaling { none, linear, dynamic, yarn, llama3, longrope };

struct RopeOptions {
  /// Columns of each head that rotate; 0 without rotary embedding.
  int64_t columns = 0;
  double base = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  int64_t original_positions = 0;                              // tokens of the context before stretching
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;                        // yarn: turns within the original context
  double attention_factor = 0;                                 // yarn, longrope; 0 for the rule of each
  std::vector<double> short_factors, long_factors;             // longrope
};

class RopeFrequencies {
 public:
  explicit RopeFrequencies(const RopeOptions& options);

  bool rotates() const { return options_.columns > 0; }
  /// For a sequence of `length` tokens, which dynamic and longrope depend on. What is not known beforehand
  /// lies in the workspace, in the caller's scope.
  RopeAngles angles(const ExecContext& exec, int64_t length) const;

  /// The inverse frequencies [columns / 2] that a sequence of `length` tokens turns by.
  std::vector<double> inverse_frequencies(int64_t length) const;
  /// What the rotated queries and keys are multiplied by.
  double magnitude() const;

 private:
  RopeOptions options_;
  std::vector<float> within_original_;  // up to the original length
};

}  // namespace megalith
