// Element-wise operations and reductions over whole buffers.
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

/// Converts between F32, BF16 and F16, rounding to nearest even. Same number of elements.
void convert(const ExecContext& context, TensorView from, TensorView to);

void fill_zero(const ExecContext& context, TensorView x);

/// x *= factor (any training dtype).
void scale(const ExecContext& context, TensorView x, float factor);

/// Sum of squares in double, in blocks of a fixed size, so that it does not depend on the number of threads.
/// F32.
double sum_of_squares(const ExecContext& context, TensorView x);

/// Index of the first element that is infinite or NaN, or -1. F32.
int64_t first_not_finite(const ExecContext& context, TensorView x);

}  // namespace megalith
