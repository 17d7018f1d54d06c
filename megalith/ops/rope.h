// Rotary position embedding (Su et al. 2021), applied in place to the query and key heads of a packed
// projection.
#pragma once

#include "megalith/ops/attention.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// Pairs (i, i + R/2) of each head's first R columns (half, as in LLaMA and GPT-NeoX), or (2i, 2i+1)
/// (interleaved, as in GPT-J).
enum class RopeStyle { half, interleaved };

/// Rotates by +position * inverse_frequency[i] (forward) or by minus that (backward). qkv [N, (H+2K)*D];
/// positions [N] I32; inverse_frequency [R/2] F32 with R <= D. Angles are computed in double.
void rope(const ExecContext& context, const AttentionShape& shape, RopeStyle style, TensorView positions,
          TensorView inverse_frequency, bool backward, TensorView qkv);

}  // namespace megalith
