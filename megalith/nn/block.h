// A transformer block: an attention branch and a feed-forward branch, one behind the other or side by side.
#pragma once

#include <string>

#include "megalith/nn/attention_layer.h"
#include "megalith/nn/feed_forward.h"
#include "megalith/nn/residual_branch.h"

namespace megalith {

struct BlockOptions {
  AttentionLayerOptions attention;
  FeedForwardOptions feed_forward;
  BranchOrder branches = BranchOrder::sequential;
  /// Norm and dropout of both branches.
  ResidualBranchOptions branch;
};

/// sequential: z = attention branch of x, y = feed-forward branch of z. parallel: both branches of x are
/// added to x; a shared norm is applied for each of them by itself, so that recompute and the messages of a
/// block are those of every other form.
class Block {
 public:
  Block(const std::string& name, const BlockOptions& options, const TensorParallel& tensor);

  /// x, y [N,C], or this rank's rows of it with sequence parallelism; x must stay as it is until the backward
  /// pass.
  void forward(const Pass& pass, TensorView x, TensorView y) const;
  /// `d` holds the gradient with respect to y and receives the one with respect to x.
  void backward(const Pass& pass, TensorView x, TensorView d);
  /// x [N,C] is replaced by the output, without saving anything.
  void forward_only(const ExecContext& exec, const TokenBatch& batch, TensorView x) const;
  /// The same for T new tokens of one sequence at positions past ..
  void forward_cached(const ExecContext& exec, TensorView positions, int64_t sequence_length, int64_t past,
                      LayerCache& cache, TensorView x) const;
  void visit(const ParameterVisitor& visitor);

  /// Bytes that forward leaves saved for a batch of `rows` rows, besides its input and output.
  size_t saved_bytes(int64_t rows, size_t element, Recompute recompute) const;
  /// Bytes that forward or backward saves for a moment, from the transient arena.
  size_t recomputed_bytes(int64_t rows, size_t element, Recompute recompute) const;

 private:
  bool parallel() const { return branches_ != BranchOrder::sequential; }
  template <class ApplyAttention>
  void apply(const ExecContext& exec, TensorView x, ApplyAttention&& apply_attention) const;

  int64_t hidden_;
  BranchOrder branches_;
  TensorParallel tensor_;
  ResidualBranch<AttentionLayer> attention_;
  ResidualBranch<FeedForward> feed_forward_;
};

}  // namespace megalith
