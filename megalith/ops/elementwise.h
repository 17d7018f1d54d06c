// Element-wise operations and reductions over whole buffers.
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

/// Converts between F32, BF16 and F16, rounding to nearest even. Same number of elements.
void convert(const ExecContext& context, TensorView from, TensorView to);

void fill_zero(const ExecContext& context, TensorView x);

/// x *= factor (any training dtype).
void scale(const ExecContext& context, TensorView x, float factor);

/// x = cap * tanh(scale * x / cap) (any training dtype); cap > 0. With 1 and 1 the hyperbolic tangent.
void soft_cap(const ExecContext& context, TensorView x, float scale, float cap);

/// sum += x, F32. Same number of elements.
void add(const ExecContext& context, TensorView x, TensorView sum);

/// Index of the first element that is infinite or NaN, or -1. F32.
int64_t first_not_finite(const ExecContext& context, TensorView x);

}  // namespace megalith
