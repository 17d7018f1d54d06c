#include "megalith/nn/linear.h"

#include <numeric>
#include <utility>

#include "megalith/ops/matmul.h"

namespace megalith {

Linear::Linear(Parameter weight, Parameter bias, bool has_bias, bool adds_bias)
    : weight_(std::move(weight)), bias_(std::move(bias)), has_bias_(has_bias), adds_bias_(adds_bias) {
  weight_.is_product_weight = true;
}

void Linear::forward(const ExecContext& context, TensorView x, TensorView y) const {
  product_forward(context, x, weight_, adds_bias_ ? bias_.value : TensorView(), y);
}

void Linear::backward(const ExecContext& context, TensorView dy, TensorView x, TensorView dx) {
  backward_parameters(context, dy, x);
  if (!dx.empty()) backward_input(context, dy, dx);
}

void Linear::backward_parameters(const ExecContext& context, TensorView dy, TensorView x) {
  linear_backward_weight(context, dy, x, weight_.gradient, weight_.start_gradient());
  if (has_bias_) {
    bias_.start_gradient_zeroed(context);
    bias_backward(context, dy, bias_.gradient);
  }
}

void Linear::backward_input(const ExecContext& context, TensorView dy, TensorView dx) const {
  linear_backward_input(context, dy, weight_.value, dx);
}

void Linear::visit(const ParameterVisitor& visitor) {
  visitor(weight_);
  if (has_bias_) visitor(bias_);
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, int64_t inputs,
                                           const std::vector<int64_t>& parts, bool bias,
                                           float standard_deviation, const TensorParallel& tensor,
                                           const char* what)
    : Linear(make_parameter(
                 name + ".weight", {std::accumulate(parts.begin(), parts.end(), int64_t{0}), inputs},
                 {Initialization::Kind::normal, standard_deviation}, true, tensor.slice(0, parts, what)),
             make_parameter(name + ".bias", {std::accumulate(parts.begin(), parts.end(), int64_t{0})}, {},
                            false, tensor.slice(0, parts, what)),
             bias, bias) {}

RowParallelLinear::RowParallelLinear(const std::string& name, int64_t inputs, int64_t outputs, bool bias,
                                     float standard_deviation, const TensorParallel& tensor, const char* what)
    : Linear(make_parameter(name + ".weight", {outputs, inputs},
                            {Initialization::Kind::normal, standard_deviation}, true,
                            tensor.slice(1, {inputs}, what)),
             make_parameter(name + ".bias", {outputs}, {}, false), bias, bias && tensor.rank() == 0) {
  bias_.is_copy = tensor.rank() > 0;
}

ReplicatedLinear::ReplicatedLinear(const std::string& name, int64_t inputs, int64_t outputs,
                                   float standard_deviation, const TensorParallel& tensor)
    : Linear(make_parameter(name + ".weight", {outputs, inputs},
                            {Initialization::Kind::normal, standard_deviation}, true),
             make_parameter(name + ".bias", {outputs}, {}, false), true, true) {
  weight_.is_copy = bias_.is_copy = tensor.rank() > 0;
  weight_.gradient_is_partial = bias_.gradient_is_partial = tensor.sequence_parallel();
}

}  // namespace megalith
