#include "megalith/nn/feed_forward.h"

namespace megalith {

FeedForward::FeedForward(const std::string& name, const FeedForwardOptions& options,
                         const TensorParallel& tensor)
    : options_(options),
      up_(name + ".up", options.hidden,
          std::vector<int64_t>(is_gated(options.activation) ? 2 : 1, options.inner), options.bias,
          options.standard_deviation, tensor, "columns of the feed-forward network"),
      down_(name + ".down", options.inner, options.hidden, options.bias, options.output_standard_deviation,
            tensor, "columns of the feed-forward network") {}

void FeedForward::forward(const Pass& pass, TensorView x, TensorView y) const {
  const TensorView inner = pass.saved.push(x.dtype(), {x.rows(), up_.outputs()});
  up_.forward(pass.exec, x, inner);
  if (y.empty()) return;
  ArenaScope scope(pass.exec.workspace);
  const TensorView activated = pass.exec.workspace.allocate(x.dtype(), {x.rows(), down_.inputs()});
  activation_forward(pass.exec, options_.activation, inner, activated);
  down_.forward(pass.exec, activated, y);
}

void FeedForward::backward(const Pass& pass, TensorView dy, TensorView x, TensorView dx) {
  const TensorView inner = pass.saved.pop();
  ArenaScope scope(pass.exec.workspace);
  const TensorView d_activated = pass.exec.workspace.allocate(dy.dtype(), {dy.rows(), down_.inputs()});
  down_.backward_input(pass.exec, dy, d_activated);
  // What nothing reads again gives its place: the input to its gradient, the output's gradient to the output,
  // which costs a store here and would cost as much memory as the input if it were kept.
  const TensorView activated = d_activated;
  activation_backward(pass.exec, options_.activation, inner, d_activated, inner, activated);
  down_.backward_parameters(pass.exec, dy, activated);
  up_.backward(pass.exec, inner, x, dx);
}

void FeedForward::forward_only(const ExecContext& context, TensorView x, TensorView y) const {
  ArenaScope scope(context.workspace);
  const TensorView inner = context.workspace.allocate(x.dtype(), {x.rows(), up_.outputs()});
  up_.forward(context, x, inner);
  const TensorView activated = context.workspace.allocate(x.dtype(), {x.rows(), down_.inputs()});
  activation_forward(context, options_.activation, inner, activated);
  down_.forward(context, activated, y);
}

void FeedForward::visit(const ParameterVisitor& visitor) {
  up_.visit(visitor);
  down_.visit(visitor);
}

size_t FeedForward::saved_bytes(int64_t rows, size_t element) const {
  return static_cast<size_t>(rows) * static_cast<size_t>(up_.outputs()) * element;
}

}  // namespace megalith
