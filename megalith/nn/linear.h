// Linear layers y = x W^T + b, whole or shared by tensor-parallel ranks.
#pragma once

#include <string>
#include <vector>

#include "megalith/nn/parameter.h"
#include "megalith/nn/tensor_parallel.h"

namespace megalith {

/// What both kinds have in common: a product with the part of the weight that this rank holds. Ranks do not
/// meet here; residual branches gather inputs and sum outputs.
class Linear {
 public:
  /// x [N, inputs()], y [N, outputs()].
  void forward(const ExecContext& context, TensorView x, TensorView y) const;
  /// Accumulates parameter gradients; assigns dx unless it is empty.
  void backward(const ExecContext& context, TensorView dy, TensorView x, TensorView dx);
  /// The halves of it, for callers that have x only after dx.
  void backward_parameters(const ExecContext& context, TensorView dy, TensorView x);
  void backward_input(const ExecContext& context, TensorView dy, TensorView dx) const;
  void visit(const ParameterVisitor& visitor);

  /// Of this rank.
  int64_t inputs() const { return weight_.local_shape()[1]; }
  int64_t outputs() const { return weight_.local_shape()[0]; }

 protected:
  /// `adds_bias`: whether this rank's product includes the bias.
  Linear(Parameter weight, Parameter bias, bool has_bias, bool adds_bias);

  Parameter weight_;  // [outputs, inputs]
  Parameter bias_;    // [outputs]

 private:
  bool has_bias_, adds_bias_;
};

/// Outputs (the columns of y) are cut over ranks, each of the fused `parts` by itself. Every rank needs the
/// whole x; dx is a partial sum.
class ColumnParallelLinear : public Linear {
 public:
  /// `what` says what the outputs are made of, for the error when they cannot be shared.
  ColumnParallelLinear(const std::string& name, int64_t inputs, const std::vector<int64_t>& parts, bool bias,
                       float standard_deviation, const TensorParallel& tensor, const char* what);
};

/// Inputs are cut over ranks. y is a partial sum, in which the first rank's holds the bias; every rank needs
/// the whole dy, which gives all of them the bias's whole gradient.
class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(const std::string& name, int64_t inputs, int64_t outputs, bool bias,
                    float standard_deviation, const TensorParallel& tensor, const char* what);
};

/// Whole on every rank, for rows of a stream: each rank multiplies the rows that it holds.
class ReplicatedLinear : public Linear {
 public:
  ReplicatedLinear(const std::string& name, int64_t inputs, int64_t outputs, float standard_deviation,
                   const TensorParallel& tensor);
};

}  // namespace megalith
