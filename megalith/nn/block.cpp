#include "megalith/nn/block.h"

namespace megalith {

namespace {

ResidualBranchOptions branch_options(ResidualBranchOptions options, uint32_t which) {
  options.which = which;
  return options;
}

}  // namespace

Block::Block(const std::string& name, const BlockOptions& options, const TensorParallel& tensor)
    : hidden_(options.attention.hidden),
      tensor_(tensor),
      attention_(name + ".attention_norm", name + ".attention", hidden_, branch_options(options.branch, 0),
                 options.attention, tensor),
      feed_forward_(name + ".feed_forward_norm", name + ".feed_forward", hidden_,
                    branch_options(options.branch, 1), options.feed_forward, tensor) {}

void Block::forward(const Pass& pass, TensorView x, TensorView y) const {
  Saved& saved = pass.saved;
  const Saved::Transient block_dropped(saved, pass.recompute == Recompute::full);
  const size_t before = saved.size();
  const TensorView middle = saved.push(x.dtype(), x.shape());
  const size_t with_middle = saved.size();
  {
    const Saved::Transient attention_dropped(saved, pass.recompute != Recompute::none);
    attention_.forward(pass, x, middle);
  }
  if (pass.recompute != Recompute::none) saved.truncate(with_middle);
  feed_forward_.forward(pass, middle, y);
  if (pass.recompute == Recompute::full) {
    saved.truncate(before);
  } else {
    saved.keep(middle);
  }
}

void Block::backward(const Pass& pass, TensorView x, TensorView d) {
  Saved& saved = pass.saved;
  const Saved::Transient computed_again(saved, pass.recompute == Recompute::full);
  if (pass.recompute == Recompute::full) {
    const TensorView middle = saved.push(x.dtype(), x.shape());
    attention_.forward(pass, x, middle);
    feed_forward_.forward(pass, middle, TensorView());
    saved.keep(middle);
  }
  const TensorView middle = saved.pop();
  feed_forward_.backward(pass, middle, d);
  const Saved::Transient attention_again(saved, pass.recompute != Recompute::none);
  if (pass.recompute == Recompute::attention) attention_.forward(pass, x, TensorView());
  attention_.backward(pass, x, d);
  saved.pop();  // the tensor in the middle
  saved.release();
}

void Block::forward_cached(const ExecContext& exec, TensorView positions, int64_t past, LayerCache& cache,
                           TensorView x) const {
  attention_.apply(exec, x, [&](const AttentionLayer& layer, TensorView input, TensorView output) {
    layer.forward_cached(exec, input, positions, past, cache, output);
  });
  feed_forward_.apply(exec, x, [&](const FeedForward& layer, TensorView input, TensorView output) {
    layer.forward_only(exec, input, output);
  });
}

void Block::visit(const ParameterVisitor& visitor) {
  attention_.visit(visitor);
  feed_forward_.visit(visitor);
}

size_t Block::saved_bytes(int64_t rows, size_t element, Recompute recompute) const {
  if (recompute == Recompute::full) return 0;
  const size_t middle = static_cast<size_t>(tensor_.stream_rows(rows) * hidden_) * element;
  const size_t feed_forward = feed_forward_.saved_bytes(rows, hidden_, element);
  const size_t attention = recompute == Recompute::none ? attention_.saved_bytes(rows, hidden_, element) : 0;
  return middle + feed_forward + attention;
}

size_t Block::recomputed_bytes(int64_t rows, size_t element, Recompute recompute) const {
  switch (recompute) {
    case Recompute::none:
      return 0;
    case Recompute::attention:
      return attention_.saved_bytes(rows, hidden_, element);
    case Recompute::full:
      return saved_bytes(rows, element, Recompute::none);
  }
  return 0;
}

}  // namespace megalith
