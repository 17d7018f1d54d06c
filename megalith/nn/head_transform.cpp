#include "megalith/nn/head_transform.h"

#include "megalith/ops/elementwise.h"

namespace megalith {

HeadTransform::HeadTransform(const HeadTransformOptions& options, const TensorParallel& tensor)
    : options_(options),
      dense_("head.dense", options.hidden, options.hidden, options.standard_deviation, tensor),
      norm_("head.norm", options.norm, options.hidden, options.norm_bias, options.norm_epsilon, tensor) {
  check(!is_gated(options.activation), "a masked language model's head needs an activation without a gate");
}

HeadTransform::State HeadTransform::forward(const ExecContext& exec, TensorView x, TensorView y,
                                            Saved* saved) const {
  const State state{exec.workspace.allocate(x.dtype(), x.shape()),
                    exec.workspace.allocate(x.dtype(), x.shape())};
  dense_.forward(exec, x, state.inner);
  activation_forward(exec, options_.activation, state.inner, state.activated);
  if (saved != nullptr) {
    norm_.forward(exec, state.activated, y, *saved);
  } else {
    norm_.forward_only(exec, state.activated, y);
  }
  return state;
}

void HeadTransform::backward(const ExecContext& exec, const State& state, TensorView dy, TensorView x,
                             TensorView dx, Saved& saved) {
  ArenaScope scope(exec.workspace);
  const TensorView d_activated = exec.workspace.allocate(dy.dtype(), dy.shape());
  fill_zero(exec, d_activated);
  norm_.backward(exec, dy, state.activated, d_activated, saved);
  // The gradient takes the place of the input, which nothing reads again.
  activation_backward(exec, options_.activation, state.inner, d_activated, state.inner);
  dense_.backward(exec, state.inner, x, dx);
}

void HeadTransform::visit(const ParameterVisitor& visitor) {
  dense_.visit(visitor);
  norm_.visit(visitor);
}

}  // namespace megalith
