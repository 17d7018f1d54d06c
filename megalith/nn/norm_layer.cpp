#include "megalith/nn/norm_layer.h"

namespace megalith {

NormLayer::NormLayer(const std::string& name, NormKind kind, int64_t columns, bool bias, double epsilon,
                     const TensorParallel& tensor)
    : kind_(kind),
      has_bias_(bias),
      epsilon_(static_cast<float>(epsilon)),
      weight_(make_parameter(name + ".weight", {columns}, {Initialization::Kind::ones, 0}, false)),
      bias_(make_parameter(name + ".bias", {columns}, {}, false)) {
  weight_.is_copy = bias_.is_copy = tensor.rank() > 0;
  weight_.gradient_is_partial = bias_.gradient_is_partial = tensor.sequence_parallel();
}

void NormLayer::forward(const ExecContext& context, TensorView x, TensorView y, Saved& saved) const {
  const TensorView mean = kind_ == NormKind::layer ? saved.push(DType::f32, {x.rows()}) : TensorView();
  const TensorView rstd = saved.push(DType::f32, {x.rows()});
  norm_forward(context, kind_, x, weight_.value, has_bias_ ? bias_.value : TensorView(), epsilon_, y, mean,
               rstd);
}

void NormLayer::forward_only(const ExecContext& context, TensorView x, TensorView y) const {
  ArenaScope scope(context.workspace);
  const TensorView mean = context.workspace.allocate(DType::f32, {x.rows()});
  const TensorView rstd = context.workspace.allocate(DType::f32, {x.rows()});
  norm_forward(context, kind_, x, weight_.value, has_bias_ ? bias_.value : TensorView(), epsilon_, y, mean,
               rstd);
}

void NormLayer::backward(const ExecContext& context, TensorView dy, TensorView x, TensorView dx,
                         Saved& saved) {
  const TensorView rstd = saved.pop();
  const TensorView mean = kind_ == NormKind::layer ? saved.pop() : TensorView();
  weight_.start_gradient_zeroed(context);
  if (has_bias_) bias_.start_gradient_zeroed(context);
  norm_backward(context, kind_, dy, x, weight_.value, mean, rstd, dx, weight_.gradient,
                has_bias_ ? bias_.gradient : TensorView());
}

void NormLayer::visit(const ParameterVisitor& visitor) {
  visitor(weight_);
  if (has_bias_) visitor(bias_);
}

}  // namespace megalith
