// Matrix products of linear layers. Shape letters: N rows (batch x tokens), C inputs, F outputs.
//
// Every product is cut into tiles that depend on its shape alone, so results do not depend on the number of
// threads. Which path computes a tile is chosen by processor and shape (docs/performance.md), never by
// timing.
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

/// y[N,F] = x[N,C] w[F,C]^T + bias[F]. x, w and bias share a dtype (F32, BF16 or F16; bias may be empty); y
/// has that dtype or F32. Products accumulate in fp32.
void linear_forward(const ExecContext& context, TensorView x, TensorView w, TensorView bias, TensorView y);

/// dx[N,C] = dy[N,F] w[F,C]; all of one dtype.
void linear_backward_input(const ExecContext& context, TensorView dy, TensorView w, TensorView dx);

/// dw[F,C] (F32) = or += dy[N,F]^T x[N,C]. dy and x share a dtype.
void linear_backward_weight(const ExecContext& context, TensorView dy, TensorView x, TensorView dw,
                            bool accumulate);

/// dbias[F] (F32) += column sums of dy[N,F].
void bias_backward(const ExecContext& context, TensorView dy, TensorView dbias);

}  // namespace megalith
