// Matrix products of linear layers. Shape letters: N rows (batch x tokens), C inputs, F outputs.
//
// Every element of a result is one sum over the inner dimension in an order fixed by the instruction-set
// level, so results depend neither on the number of threads nor on how the work is cut. Which kernels compute
// it is chosen by the processor, never by timing.
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

/// y[N,F] = x[N,C] w[F,C]^T + bias[F]. x, w and bias share a dtype (F32, BF16 or F16; bias may be empty); y
/// has that dtype or F32. Products accumulate in fp32. A row of y depends, bit for bit, on its row of x
/// alone, however many rows there are.
void linear_forward(const ExecContext& context, TensorView x, TensorView w, TensorView bias, TensorView y);

/// Weights in the order in which the kernels of the active level read them, for inference: made once, they
/// let products of few rows run at the speed of memory. Results are those of linear_forward, bit for bit.
struct PackedWeight {
  TensorView data;  // bytes (U8)
  DType dtype = DType::f32;
  int64_t outputs = 0, inputs = 0;
};
size_t packed_weight_bytes(DType dtype, int64_t outputs, int64_t inputs);
/// `data` holds packed_weight_bytes bytes, U8.
PackedWeight pack_weight(const ExecContext& context, TensorView w, TensorView data);
void linear_forward(const ExecContext& context, TensorView x, const PackedWeight& w, TensorView bias,
                    TensorView y);

/// dx[N,C] = dy[N,F] w[F,C]; all of one dtype.
void linear_backward_input(const ExecContext& context, TensorView dy, TensorView w, TensorView dx);

/// dw[F,C] (F32) = or += dy[N,F]^T x[N,C]. dy and x share a dtype.
void linear_backward_weight(const ExecContext& context, TensorView dy, TensorView x, TensorView dw,
                            bool accumulate);

/// dbias[F] (F32) += column sums of dy[N,F].
void bias_backward(const ExecContext& context, TensorView dy, TensorView dbias);

}  // namespace megalith
