// Activations of the feed-forward network. N rows, F feed-forward columns.
#pragma once

#include <string_view>

#include "megalith/tensor/exec.h"

namespace megalith {

/// gelu_tanh is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), gelu_erf the exact one. SwiGLU and GeGLU
/// (Shazeer 2020) are gated: the input holds F gate columns, then F up columns, and the output is act(gate) *
/// up.
enum class Activation { gelu_tanh, gelu_erf, relu, silu, swiglu, geglu_tanh, geglu_erf };

inline bool is_gated(Activation activation) {
  return activation == Activation::swiglu || activation == Activation::geglu_tanh ||
         activation == Activation::geglu_erf;
}

/// x [N,F], or [N,2F] when gated; y [N,F]; one dtype.
void activation_forward(const ExecContext& context, Activation activation, TensorView x, TensorView y);

/// dx (assigned, shaped as x) from dy [N,F]. dx may be x. Unless it is empty, y [N,F] receives the output
/// once more, so that nobody has to keep it; y may be dy.
void activation_backward(const ExecContext& context, Activation activation, TensorView x, TensorView dy,
                         TensorView dx, TensorView y = TensorView());

}  // namespace megalith
