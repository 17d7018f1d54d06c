// Multi-head (or grouped-query) self-attention: packed projection, optional norm of queries and keys,
// optional rotary embedding, attention, output projection.
#pragma once

#include <string>
#include <vector>

#include "megalith/nn/linear.h"
#include "megalith/nn/pass.h"
#include "megalith/nn/rope_frequencies.h"
#include "megalith/ops/attention.h"

namespace megalith {

struct AttentionLayerOptions {
  int64_t layer = 0;
  int64_t hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  bool qkv_bias = true, output_bias = true;
  float standard_deviation = 0.02f, output_standard_deviation = 0.02f;
  double dropout = 0;
  double scale = 0;  // of the products of queries and keys
  bool causal = true;
  int64_t window = 0;  // 0 without
  double softcap = 0;  // 0 without
  bool alibi = false;
  /// RMSNorm of each head of queries and keys, before they rotate.
  bool qk_norm = false;
  double qk_norm_epsilon = 1e-6;
  RopeOptions rope;
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
  /// Without saving anything.
  void forward_only(const ExecContext& exec, const TokenBatch& batch, TensorView x, TensorView y) const;
  /// T new tokens of one sequence at positions past .. past+T-1, for layers that are causal. Rotary scalings
  /// that depend on the length of the sequence (dynamic, longrope) take it from `sequence_length`, and leave
  /// the keys of the cache as they are.
  void forward_cached(const ExecContext& exec, TensorView x, TensorView positions, int64_t sequence_length,
                      int64_t past, LayerCache& cache, TensorView y) const;
  void visit(const ParameterVisitor& visitor);
  /// Bytes that forward saves for `rows` rows.
  size_t saved_bytes(int64_t rows, size_t element) const;

 private:
  AttentionShape shape(int64_t batch, int64_t tokens) const;
  Dropout dropout(const Pass& pass) const;
  /// The queries, keys and values of x, as attention multiplies them. `before` and `rstd` keep what the norm
  /// of the heads needs in the backward pass; empty without one.
  void project(const ExecContext& exec, const AttentionShape& shape, TensorView x, TensorView positions,
               int64_t length, TensorView qkv, TensorView before, TensorView rstd) const;

  AttentionLayerOptions options_;
  int64_t heads_, kv_heads_;  // of this rank
  int64_t first_head_;
  ColumnParallelLinear packed_;
  Parameter query_norm_, key_norm_;  // [D], of all heads
  RowParallelLinear output_;
  RopeFrequencies rope_;
  std::vector<float> slopes_;  // of this rank's heads
};

}  // namespace megalith
