// A decoder-only transformer assembled from a ModelConfig.
#pragma once

#include <vector>

#include "megalith/model/model_config.h"
#include "megalith/nn/block.h"
#include "megalith/nn/embedding_layer.h"
#include "megalith/nn/language_model_head.h"

namespace megalith {

/// Keys and values of one sequence in all layers.
struct ModelCache {
  int64_t capacity = 0;  // tokens
  int64_t length = 0;    // tokens that are in it
  std::vector<LayerCache> layers;
};

class Transformer {
 public:
  /// Describes the parameters, those of one rank of `tensor`; nothing is allocated until ParameterBuffers
  /// binds them. `config` must be resolved.
  explicit Transformer(const ModelConfig& config, const TensorParallel& tensor = {});
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// losses [N] F32: cross-entropy of each row, unweighted, 0 without a target. Leaves nothing saved.
  void loss(const Pass& pass, TensorView losses) const;
  /// The same with the backward pass: parameter gradients of sum(loss_weights * losses) accumulate.
  void loss_and_gradient(const Pass& pass, TensorView losses);
  /// Appends tokens [T] I32 to the cached sequence and gives the logits of the last `logits.rows()` of them:
  /// logits [rows, V padded] F32. Throws Error when the cache or the model's positions do not hold them, or
  /// when the model is shared by ranks.
  void forward_cached(const ExecContext& exec, TensorView token_ids, ModelCache& cache,
                      TensorView logits) const;

  /// Every parameter once, in one order: embedding, blocks, final norm, head.
  void walk(const ParameterVisitor& visitor);
  const ModelConfig& config() const { return config_; }
  const TensorParallel& tensor_parallel() const { return tensor_; }

  /// Bytes that loss_and_gradient holds in `saved` at its peak, for a batch of `rows` rows
  /// (docs/architecture.md, memory).
  size_t activation_bytes(int64_t rows, size_t element, Recompute recompute) const;

 private:
  ModelConfig config_;
  TensorParallel tensor_;
  EmbeddingLayer embedding_;
  std::vector<Block> blocks_;
  LanguageModelHead head_;
};

/// An empty cache for `capacity` tokens of dtype `dtype`, cut from `arena`.
ModelCache make_cache(const ModelConfig& config, DType dtype, int64_t capacity, Arena& arena);

}  // namespace megalith
