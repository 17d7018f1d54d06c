// Parameter updates over flat fp32 buffers; n elements.
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

struct AdamWArguments {
  float learning_rate = 0;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0;
  float bias_correction1 = 1, bias_correction2 = 1;  // 1 - beta^t
  float gradient_scale = 1;  // clipping factor / loss scale, multiplied into the gradient
};

/// AdamW (Loshchilov and Hutter 2019): m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
/// w -= lr (m/c1 / (sqrt(v/c2) + epsilon) + decay w). `copy` (BF16 or F16, may be empty) receives the rounded
/// weights.
void adamw_update(const ExecContext& context, const AdamWArguments& arguments, TensorView weight,
                  TensorView m, TensorView v, TensorView gradient, TensorView copy);

struct SgdArguments {
  float learning_rate = 0, momentum = 0, weight_decay = 0, gradient_scale = 1;
};

/// SGD with momentum as PyTorch defines it: g += decay w; u = momentum u + g; w -= lr u. `u` is empty when
/// momentum is 0.
void sgd_update(const ExecContext& context, const SgdArguments& arguments, TensorView weight, TensorView u,
                TensorView gradient, TensorView copy);

/// LAMB (You et al. 2020) for one tensor: r = m/c1 / (sqrt(v/c2) + epsilon) + decay w; w -= lr * (|w|/|r|) r,
/// with the ratio 1 when a norm is zero. Norms in a fixed order. Takes n floats of workspace.
void lamb_update(const ExecContext& context, const AdamWArguments& arguments, TensorView weight, TensorView m,
                 TensorView v, TensorView gradient, TensorView copy);

}  // namespace megalith
