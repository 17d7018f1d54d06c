// A residual branch: a layer, its norms and the sum with the stream.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "megalith/nn/block_form.h"
#include "megalith/nn/norm_layer.h"
#include "megalith/nn/pass.h"
#include "megalith/ops/dropout.h"
#include "megalith/ops/elementwise.h"

namespace megalith {

struct ResidualBranchOptions {
  NormPlacement placement = NormPlacement::pre;
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  double norm_epsilon = 1e-5;
  double dropout = 0;
  int64_t layer = 0;
  /// Tells the branches of a block apart in the dropout key.
  uint32_t which = 0;
};

/// With the layer f, the branch's input x and the stream r that it is added to (x itself, but for the second
/// of two parallel branches):
///
///     pre    y = r + dropout(f(norm(x)))
///     both   y = r + dropout(post_norm(f(norm(x))))
///     post   y = norm(x + dropout(f(x)))
///
/// x, r and y are streams [N,C]; with sequence parallelism each rank has its own rows of them. Layers see all
/// N rows and give partial sums over the tensor-parallel ranks, which meet here: once in each direction
/// without sequence parallelism, twice (with half the volume each) with it.
///
/// Layer has forward(pass, x, y), which skips what only y needs when y is empty, backward(pass, dy, x, dx),
/// visit and saved_bytes.
template <class Layer>
class ResidualBranch {
 public:
  /// Names are `name` of the layer, `name`_norm and `name`_post_norm. With `shared_norm` the branch uses the
  /// norm of another one, which visits it.
  template <class LayerOptions>
  ResidualBranch(const std::string& name, int64_t hidden, const ResidualBranchOptions& options,
                 const LayerOptions& layer_options, const TensorParallel& tensor,
                 std::shared_ptr<NormLayer> shared_norm = nullptr)
      : options_(options),
        tensor_(tensor),
        owns_norm_(shared_norm == nullptr),
        norm_(owns_norm_ ? std::make_shared<NormLayer>(name + "_norm", options.norm, hidden,
                                                       options.norm_bias, options.norm_epsilon, tensor)
                         : std::move(shared_norm)),
        layer_(name, layer_options, tensor) {
    if (options.placement == NormPlacement::both) {
      post_norm_.emplace(name + "_post_norm", options.norm, hidden, options.norm_bias, options.norm_epsilon,
                         tensor);
    }
  }

  const std::shared_ptr<NormLayer>& norm() const { return norm_; }

  /// `residual` is r; it may be y. With an empty y only fills `saved`, for a backward pass after recompute.
  void forward(const Pass& pass, TensorView x, TensorView residual, TensorView y) const {
    const ExecContext& exec = pass.exec;
    const Shape whole{pass.batch.rows(), x.columns()};
    const TensorView input = enter(pass, x, whole);
    // What the norm at the end normalises.
    const TensorView end = has_end() ? pass.saved.push(x.dtype(), x.shape()) : TensorView();
    if (y.empty() && !has_end()) {
      layer_.forward(pass, input, TensorView());
    } else {
      ArenaScope scope(exec.workspace);
      const TensorView branch = exec.workspace.allocate(x.dtype(), whole);
      layer_.forward(pass, input, branch);
      tensor_.reduce(exec, branch);
      const TensorView own = tensor_.own_rows(branch);
      switch (options_.placement) {
        case NormPlacement::pre:
          residual_add(exec, residual, own, dropout(pass), y);
          break;
        case NormPlacement::both:
          convert(exec, own, end);
          post_norm_->forward(exec, end, own, pass.saved);
          if (!y.empty()) residual_add(exec, residual, own, dropout(pass), y);
          break;
        case NormPlacement::post:
          residual_add(exec, x, own, dropout(pass), end);
          norm_->forward(exec, end, y.empty() ? own : y, pass.saved);
          break;
      }
    }
    if (has_end()) pass.saved.keep(end);
    pass.saved.keep(input);
  }

  /// dy is the gradient with respect to y; d holds the one that reaches x by the residual path (dy, unless
  /// the norm stands behind the sum) and receives the one with respect to x. They may be the same.
  void backward(const Pass& pass, TensorView x, TensorView dy, TensorView d) {
    const ExecContext& exec = pass.exec;
    const TensorView input = pass.saved.pop();
    const TensorView end = has_end() ? pass.saved.pop() : TensorView();
    ArenaScope scope(exec.workspace);
    if (options_.placement == NormPlacement::post) {
      const TensorView d_end = norm_gradient(exec, *norm_, dy, end, pass.saved);
      convert(exec, d_end, d);
      dy = d;
    }
    const Shape whole{pass.batch.rows(), x.columns()};
    TensorView d_branch = dy;
    const Dropout mask = dropout(pass);
    if (mask.active() || tensor_.sequence_parallel() || options_.placement == NormPlacement::both) {
      d_branch = exec.workspace.allocate(d.dtype(), whole);
      const TensorView own = tensor_.own_rows(d_branch);
      dropout_backward(exec, dy, mask, own);
      if (options_.placement == NormPlacement::both) {
        ArenaScope inner(exec.workspace);
        convert(exec, norm_gradient(exec, *post_norm_, own, end, pass.saved), own);
      }
      tensor_.gather(exec, d_branch);
    }
    const TensorView d_input = exec.workspace.allocate(d.dtype(), whole);
    layer_.backward(pass, d_branch, input, d_input);
    tensor_.reduce(exec, d_input);
    const TensorView own = tensor_.own_rows(d_input);
    if (has_end()) pass.saved.pop();
    if (options_.placement == NormPlacement::post) {
      residual_add(exec, d, own, Dropout(), d);
      if (tensor_.sequence_parallel()) pass.saved.pop();
    } else {
      norm_->backward(exec, own, x, d, pass.saved);
      pass.saved.pop();
    }
  }

  /// y = r + f, for inference, where y holds r; x may be y. `apply_layer(layer, input, output)` runs the
  /// layer.
  template <class ApplyLayer>
  void apply(const ExecContext& exec, TensorView x, TensorView y, ApplyLayer&& apply_layer) const {
    ArenaScope scope(exec.workspace);
    TensorView input = x;
    if (options_.placement != NormPlacement::post) {
      input = exec.workspace.allocate(x.dtype(), x.shape());
      norm_->forward_only(exec, x, input);
    }
    const TensorView branch = exec.workspace.allocate(x.dtype(), x.shape());
    apply_layer(layer_, input, branch);
    if (options_.placement == NormPlacement::both) post_norm_->forward_only(exec, branch, branch);
    residual_add(exec, y, branch, Dropout(), y);
    if (options_.placement == NormPlacement::post) norm_->forward_only(exec, y, y);
  }

  void visit(const ParameterVisitor& visitor) {
    if (owns_norm_) norm_->visit(visitor);
    layer_.visit(visitor);
    if (post_norm_) post_norm_->visit(visitor);
  }

  /// For a batch of `rows` rows.
  size_t saved_bytes(int64_t rows, int64_t hidden, size_t element) const {
    const int64_t stream = tensor_.stream_rows(rows);
    const bool keeps_input = options_.placement != NormPlacement::post || tensor_.sequence_parallel();
    const int64_t kept_rows = (keeps_input ? rows : 0) + (has_end() ? stream : 0);
    return static_cast<size_t>(kept_rows * hidden) * element + norm_->saved_bytes(stream) +
           (post_norm_ ? post_norm_->saved_bytes(stream) : 0) + layer_.saved_bytes(rows, element);
  }

 private:
  bool has_end() const { return options_.placement != NormPlacement::pre; }

  /// The input of the layer, all rows of it.
  TensorView enter(const Pass& pass, TensorView x, const Shape& whole) const {
    if (options_.placement == NormPlacement::post && !tensor_.sequence_parallel()) return x;
    const TensorView input = pass.saved.push(x.dtype(), whole);
    if (options_.placement == NormPlacement::post) {
      convert(pass.exec, x, tensor_.own_rows(input));
    } else {
      norm_->forward(pass.exec, x, tensor_.own_rows(input), pass.saved);
    }
    tensor_.gather(pass.exec, input);
    return input;
  }

  /// The gradient through a norm that no residual path goes round, from the workspace.
  static TensorView norm_gradient(const ExecContext& exec, NormLayer& norm, TensorView dy, TensorView x,
                                  Saved& saved) {
    const TensorView dx = exec.workspace.allocate(x.dtype(), x.shape());
    fill_zero(exec, dx);
    norm.backward(exec, dy, x, dx, saved);
    return dx;
  }

  Dropout dropout(const Pass& pass) const {
    Dropout dropout =
        pass.dropout(options_.dropout, RandomUse::hidden_dropout, options_.layer, options_.which);
    dropout.first_position += static_cast<uint64_t>(tensor_.first_stream_row(pass.batch.rows()));
    return dropout;
  }

  ResidualBranchOptions options_;
  TensorParallel tensor_;
  bool owns_norm_;
  std::shared_ptr<NormLayer> norm_;
  Layer layer_;
  std::optional<NormLayer> post_norm_;
};

}  // namespace megalith
