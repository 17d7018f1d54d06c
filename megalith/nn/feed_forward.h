// Feed-forward network: up projection (gate and up when gated), activation, down projection.
#pragma once

#include <string>

#include "megalith/nn/linear.h"
#include "megalith/nn/pass.h"
#include "megalith/ops/activation.h"

namespace megalith {

struct FeedForwardOptions {
  int64_t hidden = 0, inner = 0;
  Activation activation = Activation::gelu_tanh;
  bool bias = true;
  float standard_deviation = 0.02f, output_standard_deviation = 0.02f;
};

class FeedForward {
 public:
  /// The inner columns are shared by the ranks of `tensor`.
  FeedForward(const std::string& name, const FeedForwardOptions& options, const TensorParallel& tensor);

  /// x, y [N,C]; y is a partial sum over ranks. With an empty y only what the backward pass needs is
  /// computed.
  void forward(const Pass& pass, TensorView x, TensorView y) const;
  /// dx, a partial sum over ranks, is assigned; x is the forward input.
  void backward(const Pass& pass, TensorView dy, TensorView x, TensorView dx);
  /// Without saving anything.
  void forward_only(const ExecContext& context, TensorView x, TensorView y) const;
  void visit(const ParameterVisitor& visitor);
  size_t saved_bytes(int64_t rows, size_t element) const;

 private:
  FeedForwardOptions options_;
  ColumnParallelLinear up_;
  RowParallelLinear down_;
};

}  // namespace megalith
