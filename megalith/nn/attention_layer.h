// Multi-head (or grouped-query) causal self-attention: packed projection, optional rotary embedding,
// attention, output projection.
#pragma once

#include <string>
#include <vector>

#include "megalith/nn/linear.h"
#include "megalith/nn/pass.h"
#include "megalith/ops/attention.h"
#include "megalith/ops/rope.h"

namespace megalith {

struct AttentionLayerOptions {
  int64_t layer = 0;
  int64_t hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  bool bias = true;
  float standard_deviation = 0.02f, output_standard_deviation = 0.02f;
  double dropout = 0;
  /// Columns of each head that rotate; 0 without rotary embedding.
  int64_t rotary_columns = 0;
  double rotary_base = 10000;
};

/// Keys and values of one sequence in one layer, [capacity, K*D] each.
struct LayerCache {
  TensorView keys, values;
};

class AttentionLayer {
 public:
  /// Heads are shared by the ranks of `tensor`, which must divide both kinds of heads.
  AttentionLayer(const std::string& name, const AttentionLayerOptions& options, const TensorParallel& tensor);

  /// x, y [N,C]; y is a partial sum over ranks. With an empty y only what the backward pass needs is
  /// computed.
  void forward(const Pass& pass, TensorView x, TensorView y) const;
  /// dx, a partial sum over ranks, is assigned; x is the forward input.
  void backward(const Pass& pass, TensorView dy, TensorView x, TensorView dx);
  /// T new tokens of one sequence at positions past .. past+T-1.
  void forward_cached(const ExecContext& context, TensorView x, TensorView positions, int64_t past,
                      LayerCache& cache, TensorView y) const;
  void visit(const ParameterVisitor& visitor);
  /// Bytes that forward saves for `rows` rows.
  size_t saved_bytes(int64_t rows, size_t element) const;

 private:
  AttentionShape shape(int64_t batch, int64_t tokens) const;
  TensorView inverse_frequency() const;
  Dropout dropout(const Pass& pass) const;

  AttentionLayerOptions options_;
  int64_t heads_, kv_heads_;  // of this rank
  int64_t first_head_;
  ColumnParallelLinear packed_;
  RowParallelLinear output_;
  std::vector<float> inverse_frequency_;
};

}  // namespace megalith
