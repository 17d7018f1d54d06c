// Linear layer: y = x W^T + b.
#pragma once

#include <string>

#include "megalith/nn/parameter.h"

namespace megalith {

class Linear {
 public:
  Linear(const std::string& name, int64_t inputs, int64_t outputs, bool bias, float standard_deviation);

  void forward(const ExecContext& context, TensorView x, TensorView y) const;
  /// Accumulates parameter gradients; assigns dx unless it is empty.
  void backward(const ExecContext& context, TensorView dy, TensorView x, TensorView dx);
  void visit(const ParameterVisitor& visitor);

  int64_t inputs() const { return weight_.shape[1]; }
  int64_t outputs() const { return weight_.shape[0]; }

 private:
  bool has_bias_;
  Parameter weight_;  // [outputs, inputs]
  Parameter bias_;    // [outputs]
};

}  // namespace megalith
