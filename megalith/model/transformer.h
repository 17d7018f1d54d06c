// A transformer, decoder or encoder, assembled from a ModelConfig.
#pragma once

#include <optional>
#include <vector>

#include "megalith/model/model_config.h"
#include "megalith/nn/block.h"
#include "megalith/nn/embedding_layer.h"
#include "megalith/nn/language_model_head.h"
#include "megalith/nn/pooler.h"

namespace megalith {

/// Keys and values of one sequence in all layers.
struct ModelCache {
  int64_t capacity = 0;  // tokens
  int64_t length = 0;    // tokens that are in it
  /// Tokens of a text that is fed piece by piece: rotary scaling that depends on the length of the sequence
  /// takes this while it is more than `length`.
  int64_t whole_length = 0;
  std::vector<LayerCache> layers;
};

/// The layers of a model that a piece of a pipeline holds.
struct ModelSlice {
  int64_t first_layer = 0, end_layer = 0;
  bool has_embedding = false, has_head = false;

  static ModelSlice whole(const ModelConfig& config) { return {0, config.num_layers, true, true}; }
  int64_t layers() const { return end_layer - first_layer; }
};

class Transformer {
 public:
  /// Describes the parameters of a slice, those of one rank of `tensor`; nothing is allocated until
  /// ParameterBuffers binds them. `config` must be resolved.
  explicit Transformer(const ModelConfig& config, const TensorParallel& tensor = {})
      : Transformer(config, tensor, ModelSlice::whole(config)) {}
  Transformer(const ModelConfig& config, const TensorParallel& tensor, const ModelSlice& slice);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// losses [N] F32: cross-entropy of each row, unweighted, 0 without a target. Leaves nothing saved.
  void loss(const Pass& pass, TensorView losses) const;

  /// The passes of a slice, step by step. x [N,C] (with sequence parallelism this rank's rows of it) is the
  /// stream that enters the first layer: with the embedding it is computed, without it the caller has filled
  /// it with what the layer before gave.
  ///
  /// First begin() pushes x on `saved`; forward() then gives the stream behind the last layer, which stays as
  /// it is until backward().
  TensorView begin(const Pass& pass, DType dtype) const;
  TensorView forward(const Pass& pass, TensorView x) const;
  /// Only with the head, between forward() and backward(): losses [N] F32 from y, what forward() gave, and
  /// the gradient with respect to it in d [N,C].
  void head_backward(const Pass& pass, TensorView y, TensorView losses, TensorView d);
  /// d [N,C] holds the gradient with respect to what forward() gave and receives that with respect to x; with
  /// the embedding it means nothing afterwards. Everything that begin() and forward() saved is gone then.
  void backward(const Pass& pass, TensorView d);
  /// Without a backward pass: `x` and `y` [N,C] take turns, the one that is returned holds the result.
  TensorView forward_only(const Pass& pass, TensorView x, TensorView y) const;
  /// losses from what forward_only() gave. Only with the head.
  void head_loss(const Pass& pass, TensorView y, TensorView losses) const;

  /// Appends tokens [T] I32 to the cached sequence and gives the logits of the last `logits.rows()` of them:
  /// logits [rows, V padded] F32. Throws Error when the cache or the model's positions do not hold them, when
  /// the model is shared by ranks, or when it is not causal.
  void forward_cached(const ExecContext& exec, TensorView token_ids, ModelCache& cache,
                      TensorView logits) const;

  /// The hidden states of whole sequences at once, behind the final norm if the model has one: hidden [N,C]
  /// of the model's type, for causal models and encoders alike. `batch` needs no targets; documents packed
  /// into a sequence do not see each other. Not for a model shared by ranks; neither are the next two.
  void encode(const ExecContext& exec, const TokenBatch& batch, TensorView hidden) const;
  /// logits [n, V padded] F32 of n hidden states; columns from V on mean nothing. Throws Error without a
  /// head.
  void logits(const ExecContext& exec, TensorView hidden, TensorView logits) const;
  /// pooled [B,C] from the hidden states [B,C] of the first tokens of B sequences. Throws Error without a
  /// pooler.
  void pool(const ExecContext& exec, TensorView first, TensorView pooled) const;

  /// Every parameter once, in one order: embedding, blocks, final norm, head, pooler.
  void walk(const ParameterVisitor& visitor);
  /// The same by units: the embedding if it is there, each block, the head if it is there.
  int64_t units() const;
  void walk_unit(int64_t unit, const ParameterVisitor& visitor);
  const ModelConfig& config() const { return config_; }
  const TensorParallel& tensor_parallel() const { return tensor_; }
  const ModelSlice& slice() const { return slice_; }
  /// Null without the embedding.
  EmbeddingLayer* embedding() { return embedding_ ? &*embedding_ : nullptr; }

  /// Bytes that the passes over `rows` rows hold in `saved` at their peak, from its kept and its transient
  /// arena (docs/architecture.md, memory).
  size_t kept_bytes(int64_t rows, size_t element, Recompute recompute) const;
  size_t transient_bytes(int64_t rows, size_t element, Recompute recompute) const;

 private:
  void check_whole(const char* what) const;

  ModelConfig config_;
  TensorParallel tensor_;
  ModelSlice slice_;
  std::optional<EmbeddingLayer> embedding_;
  std::vector<Block> blocks_;
  std::optional<LanguageModelHead> head_;
  std::optional<Pooler> pooler_;
};

/// An empty cache for `capacity` tokens of dtype `dtype`, cut from `arena`.
ModelCache make_cache(const ModelConfig& config, DType dtype, int64_t capacity, Arena& arena);

}  // namespace megalith
