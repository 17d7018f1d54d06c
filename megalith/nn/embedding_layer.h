// Token embedding, vocabulary-parallel; learned positions, token types and a norm when the model has them;
// dropout.
#pragma once

#include <optional>

#include "megalith/nn/norm_layer.h"
#include "megalith/nn/pass.h"
#include "megalith/nn/vocabulary_table.h"
#include "megalith/ops/embedding.h"

namespace megalith {

struct EmbeddingOptions {
  int64_t vocabulary = 0, padded_vocabulary = 0, hidden = 0;
  /// 0 without learned positions.
  int64_t positions = 0;
  /// 0 without token types.
  int64_t token_types = 0;
  /// Multiplies the token embedding.
  double scale = 1;
  float standard_deviation = 0.02f;
  double dropout = 0;
  bool has_norm = false;
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  double norm_epsilon = 1e-5;
};

/// y = dropout(norm(scale * token + position + type)).

class EmbeddingLayer {
 public:
  EmbeddingLayer(const EmbeddingOptions& options, const TensorParallel& tensor);

  /// y [N,C], or this rank's rows of it with sequence parallelism.
  void forward(const Pass& pass, TensorView y) const;
  void backward(const Pass& pass, TensorView dy);
  /// From now on the gradients of look-ups add up in `buffer`, F32 of the token table's size, instead of with
  /// those of a tied output layer, until add_lookup_gradient(). An empty buffer ends it.
  void separate_lookup_gradient(TensorView buffer);
  /// Adds what has been kept apart to the token table's gradient.
  void add_lookup_gradient(const ExecContext& exec);
  /// With the whole token table, and without saving anything.
  void forward_only(const ExecContext& exec, const TokenBatch& batch, TensorView y) const;
  void visit(const ParameterVisitor& visitor);
  /// Bytes that forward saves for a batch of `rows` rows.
  size_t saved_bytes(int64_t rows, size_t element) const;
  /// This rank's part of the token table [V padded, C], which a tied output layer shares.
  Parameter& token_table() { return token_; }
  const Parameter& token_table() const { return token_; }

 private:
  AddedEmbeddings added(const TokenBatch& batch) const;
  Dropout dropout(const Pass& pass) const;
  /// With the whole token table, before the norm.
  void embed(const ExecContext& exec, const TokenBatch& batch, const Dropout& mask, TensorView y) const;

  EmbeddingOptions options_;
  TensorParallel tensor_;
  VocabularyShare share_;
  Parameter token_, position_, type_;
  std::optional<NormLayer> norm_;
  TensorView lookup_gradient_;  // empty when not kept apart
  bool lookup_started_ = false;
};

}  // namespace megalith
