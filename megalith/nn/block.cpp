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
      branches_(options.branches),
      tensor_(tensor),
      attention_(name + ".attention", hidden_, branch_options(options.branch, 0), options.attention, tensor),
      feed_forward_(name + ".feed_forward", hidden_, branch_options(options.branch, 1), options.feed_forward,
                    tensor,
                    options.branches == BranchOrder::parallel_shared_norm ? attention_.norm() : nullptr) {
  check(!parallel() || options.branch.placement == NormPlacement::pre,
        "{}: parallel branches are normalised before them only", name);
}

void Block::forward(const Pass& pass, TensorView x, TensorView y) const {
  Saved& saved = pass.saved;
  const Saved::Transient block_dropped(saved, pass.recompute == Recompute::full);
  const size_t before = saved.size();
  const TensorView middle = parallel() ? y : saved.push(x.dtype(), x.shape());
  const size_t with_middle = saved.size();
  {
    const Saved::Transient attention_dropped(saved, pass.recompute != Recompute::none);
    attention_.forward(pass, x, x, middle);
  }
  if (pass.recompute != Recompute::none) saved.truncate(with_middle);
  feed_forward_.forward(pass, parallel() ? x : middle, middle, y);
  if (pass.recompute == Recompute::full) {
    saved.truncate(before);
  } else if (!parallel()) {
    saved.keep(middle);
  }
}

void Block::backward(const Pass& pass, TensorView x, TensorView d) {
  Saved& saved = pass.saved;
  const Saved::Transient computed_again(saved, pass.recompute == Recompute::full);
  ArenaScope scope(pass.exec.workspace);
  // Both of two parallel branches need the gradient as it comes, while d takes up their parts.
  TensorView dy = d, middle = x;
  if (parallel()) {
    dy = pass.exec.workspace.allocate(d.dtype(), d.shape());
    convert(pass.exec, d, dy);
  }
  if (pass.recompute == Recompute::full) {
    if (!parallel()) middle = saved.push(x.dtype(), x.shape());
    attention_.forward(pass, x, x, parallel() ? TensorView() : middle);
    feed_forward_.forward(pass, middle, middle, TensorView());
    if (!parallel()) saved.keep(middle);
  }
  if (!parallel()) middle = saved.pop();
  feed_forward_.backward(pass, middle, dy, d);
  const Saved::Transient attention_again(saved, pass.recompute != Recompute::none);
  if (pass.recompute == Recompute::attention) attention_.forward(pass, x, x, TensorView());
  attention_.backward(pass, x, dy, d);
  if (!parallel()) saved.pop();  // the tensor in the middle
  saved.release();
}

template <class ApplyAttention>
void Block::apply(const ExecContext& exec, TensorView x, ApplyAttention&& apply_attention) const {
  ArenaScope scope(exec.workspace);
  TensorView input = x;
  if (parallel()) {
    input = exec.workspace.allocate(x.dtype(), x.shape());
    convert(exec, x, input);
  }
  attention_.apply(exec, input, x, apply_attention);
  feed_forward_.apply(exec, input, x, [&](const FeedForward& layer, TensorView from, TensorView to) {
    layer.forward_only(exec, from, to);
  });
}

void Block::forward_only(const ExecContext& exec, const TokenBatch& batch, TensorView x) const {
  apply(exec, x, [&](const AttentionLayer& layer, TensorView from, TensorView to) {
    layer.forward_only(exec, batch, from, to);
  });
}

void Block::forward_cached(const ExecContext& exec, TensorView positions, int64_t sequence_length,
                           int64_t past, LayerCache& cache, TensorView x) const {
  apply(exec, x, [&](const AttentionLayer& layer, TensorView from, TensorView to) {
    layer.forward_cached(exec, from, positions, sequence_length, past, cache, to);
  });
}

void Block::visit(const ParameterVisitor& visitor) {
  attention_.visit(visitor);
  feed_forward_.visit(visitor);
}

size_t Block::saved_bytes(int64_t rows, size_t element, Recompute recompute) const {
  if (recompute == Recompute::full) return 0;
  const size_t middle = parallel() ? 0 : static_cast<size_t>(tensor_.stream_rows(rows) * hidden_) * element;
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
