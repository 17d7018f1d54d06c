// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) over the last dimension. N rows, C
// columns.
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

enum class NormKind { layer, rms };

/// y = (x - mean) / sqrt(var + epsilon) * weight + bias for LayerNorm; y = x / sqrt(mean(x^2) + epsilon) *
/// weight for RMSNorm. x, y, weight, bias of one dtype; bias may be empty; mean and rstd [N] F32 are kept for
/// the backward pass (RMSNorm: mean may be empty). Statistics in fp32.
void norm_forward(const ExecContext& context, NormKind kind, TensorView x, TensorView weight, TensorView bias,
                  float epsilon, TensorView y, TensorView mean, TensorView rstd);

/// dx += the gradient with respect to x: norms stand on the residual branch, whose own gradient dx already
/// holds. dweight, dbias (F32, dbias may be empty) +=. Sums over rows have an order fixed by N alone.
void norm_backward(const ExecContext& context, NormKind kind, TensorView dy, TensorView x, TensorView weight,
                   TensorView mean, TensorView rstd, TensorView dx, TensorView dweight, TensorView dbias);

}  // namespace megalith
