// Rotary position embedding (Su et al. 2021), applied in place to the query and key heads of a packed
// projection.
#pragma once

#include "megalith/ops/attention.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// Pairs (i, i + R/2) of each head's first R columns (half, as in LLaMA and GPT-NeoX), or (2i, 2i+1)
/// (interleaved, as in GPT-J).
enum class RopeStyle { half, interleaved };

/// How a pair turns: by position * inverse_frequency[i], and grows by `magnitude` (YaRN, LongRoPE).
struct RopeAngles {
  TensorView inverse_frequency;  // [R/2] F32
  float magnitude = 1;
};

/// Rotates by +position * inverse_frequency[i] (forward) or by minus that (backward), and multiplies by the
/// magnitude. qkv [N, (H+2K)*D]; positions [N] I32; R <= D. Angles are computed in double.
void rope(const ExecContext& context, const AttentionShape& shape, RopeStyle style, TensorView positions,
          const RopeAngles& angles, bool backward, TensorView qkv);

}  // namespace megalith
