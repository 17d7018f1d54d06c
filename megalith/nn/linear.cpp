#include "megalith/nn/linear.h"

#include "megalith/ops/matmul.h"

namespace megalith {

Linear::Linear(const std::string& name, int64_t inputs, int64_t outputs, bool bias, float standard_deviation)
    : has_bias_(bias),
      weight_(make_parameter(name + ".weight", {outputs, inputs},
                             {Initialization::Kind::normal, standard_deviation}, true)),
      bias_(make_parameter(name + ".bias", {outputs}, {}, false)) {
  weight_.is_product_weight = true;
}

void Linear::forward(const ExecContext& context, TensorView x, TensorView y) const {
  product_forward(context, x, weight_, has_bias_ ? bias_.value : TensorView(), y);
}

void Linear::backward(const ExecContext& context, TensorView dy, TensorView x, TensorView dx) {
  linear_backward_weight(context, dy, x, weight_.gradient, weight_.start_gradient());
  if (has_bias_) {
    bias_.start_gradient_zeroed(context);
    bias_backward(context, dy, bias_.gradient);
  }
  if (!dx.empty()) linear_backward_input(context, dy, weight_.value, dx);
}

void Linear::visit(const ParameterVisitor& visitor) {
  visitor(weight_);
  if (has_bias_) visitor(bias_);
}

}  // namespace megalith
