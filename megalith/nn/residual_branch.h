// A pre-normalisation residual branch: y = x + dropout(layer(norm(x))).
#pragma once

#include <string>

#include "megalith/nn/norm_layer.h"
#include "megalith/nn/pass.h"
#include "megalith/ops/dropout.h"

namespace megalith {

struct ResidualBranchOptions {
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  double norm_epsilon = 1e-5;
  double dropout = 0;
  int64_t layer = 0;
  /// Tells the branches of a block apart in the dropout key.
  uint32_t which = 0;
};

/// x and y are residual streams [N,C]; with sequence parallelism each rank has its own rows of them. Layers
/// see all N rows and give partial sums over the tensor-parallel ranks, which meet here: once in each
/// direction without sequence parallelism, twice (with half the volume each) with it.
///
/// Layer has forward(pass, x, y), which skips what only y needs when y is empty, backward(pass, dy, x, dx),
/// visit and saved_bytes.
template <class Layer>
class ResidualBranch {
 public:
  template <class LayerOptions>
  ResidualBranch(const std::string& norm_name, const std::string& layer_name, int64_t hidden,
                 const ResidualBranchOptions& options, const LayerOptions& layer_options,
                 const TensorParallel& tensor)
      : options_(options),
        tensor_(tensor),
        norm_(norm_name, options.norm, hidden, options.norm_bias, options.norm_epsilon, tensor),
        layer_(layer_name, layer_options, tensor) {}

  /// With an empty y only fills `saved`, for a backward pass after recompute.
  void forward(const Pass& pass, TensorView x, TensorView y) const {
    const Shape whole{pass.batch.rows(), x.columns()};
    const TensorView normalized = pass.saved.push(x.dtype(), whole);
    norm_.forward(pass.exec, x, tensor_.own_rows(normalized), pass.saved);
    tensor_.gather(pass.exec, normalized);
    if (y.empty()) {
      layer_.forward(pass, normalized, TensorView());
    } else {
      ArenaScope scope(pass.exec.workspace);
      const TensorView branch = pass.exec.workspace.allocate(x.dtype(), whole);
      layer_.forward(pass, normalized, branch);
      tensor_.reduce(pass.exec, branch);
      residual_add(pass.exec, x, tensor_.own_rows(branch), dropout(pass), y);
    }
    pass.saved.keep(normalized);
  }

  /// `d` holds the gradient with respect to y and receives the one with respect to x.
  void backward(const Pass& pass, TensorView x, TensorView d) {
    const ExecContext& exec = pass.exec;
    const TensorView normalized = pass.saved.pop();
    ArenaScope scope(exec.workspace);
    TensorView dy = d;
    if (const Dropout mask = dropout(pass); mask.active() || tensor_.sequence_parallel()) {
      dy = exec.workspace.allocate(d.dtype(), normalized.shape());
      dropout_backward(exec, d, mask, tensor_.own_rows(dy));
      tensor_.gather(exec, dy);
    }
    const TensorView d_normalized = exec.workspace.allocate(d.dtype(), normalized.shape());
    layer_.backward(pass, dy, normalized, d_normalized);
    tensor_.reduce(exec, d_normalized);
    norm_.backward(exec, tensor_.own_rows(d_normalized), x, d, pass.saved);
    pass.saved.pop();
  }

  /// x is replaced by the output of the branch, for inference; `apply_layer(layer, input, output)` runs the
  /// layer.
  template <class ApplyLayer>
  void apply(const ExecContext& exec, TensorView x, ApplyLayer&& apply_layer) const {
    ArenaScope scope(exec.workspace);
    const TensorView normalized = exec.workspace.allocate(x.dtype(), x.shape());
    norm_.forward_only(exec, x, normalized);
    const TensorView branch = exec.workspace.allocate(x.dtype(), x.shape());
    apply_layer(layer_, normalized, branch);
    residual_add(exec, x, branch, Dropout(), x);
  }

  void visit(const ParameterVisitor& visitor) {
    norm_.visit(visitor);
    layer_.visit(visitor);
  }

  /// For a batch of `rows` rows.
  size_t saved_bytes(int64_t rows, int64_t hidden, size_t element) const {
    return static_cast<size_t>(rows * hidden) * element + norm_.saved_bytes(tensor_.stream_rows(rows)) +
           layer_.saved_bytes(rows, element);
  }

 private:
  Dropout dropout(const Pass& pass) const {
    Dropout dropout =
        pass.dropout(options_.dropout, RandomUse::hidden_dropout, options_.layer, options_.which);
    dropout.first_position += static_cast<uint64_t>(tensor_.first_stream_row(pass.batch.rows()));
    return dropout;
  }

  ResidualBranchOptions options_;
  TensorParallel tensor_;
  NormLayer norm_;
  Layer layer_;
};

}  // namespace megalith
