// RMSNorm of each query and key head of a packed projection (Dehghani et al., "Scaling Vision Transformers to
// 22 Billion Parameters"; Qwen 3, Gemma 3). N rows, H query heads, K key heads, D head size.
#pragma once

#include "megalith/ops/attention.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// Replaces the query and key heads of qkv [N, (H+2K)*D] by x / sqrt(mean(x^2) + epsilon) * weight, with one
/// weight [D] for all query heads and one for all key heads. For the backward pass `before` [N, (H+K)*D], of
/// the same dtype, keeps what they were and rstd [N*(H+K)] F32 their statistics; both are empty without one.
void head_norm_forward(const ExecContext& context, const AttentionShape& shape, TensorView query_weight,
                       TensorView key_weight, float epsilon, TensorView qkv, TensorView before,
                       TensorView rstd);

/// dqkv holds the gradient with respect to the normalised heads and receives the one with respect to what
/// they were; the values' part stays. d_query_weight, d_key_weight [D] F32 +=, in an order fixed by N.
void head_norm_backward(const ExecContext& context, const AttentionShape& shape, TensorView query_weight,
                        TensorView key_weight, TensorView before, TensorView rstd, TensorView dqkv,
                        TensorView d_query_weight, TensorView d_key_weight);

}  // namespace megalith
