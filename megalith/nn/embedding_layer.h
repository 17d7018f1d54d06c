// Token embedding, learned positions when the model has them, and dropout.
#pragma once

#include "megalith/nn/parameter.h"
#include "megalith/nn/pass.h"

namespace megalith {

struct EmbeddingOptions {
  int64_t vocabulary = 0, padded_vocabulary = 0, hidden = 0;
  /// 0 without learned positions.
  int64_t positions = 0;
  float standard_deviation = 0.02f;
  double dropout = 0;
};

class EmbeddingLayer {
 public:
  explicit EmbeddingLayer(const EmbeddingOptions& options);

  /// y [N,C].
  void forward(const Pass& pass, TensorView y) const;
  void backward(const Pass& pass, TensorView dy);
  void forward_only(const ExecContext& exec, TensorView token_ids, TensorView positions, TensorView y) const;
  void visit(const ParameterVisitor& visitor);
  /// The token table [V padded, C], which a tied output layer shares.
  Parameter& token_table() { return token_; }
  const Parameter& token_table() const { return token_; }

 private:
  TensorView position_table() const { return options_.positions > 0 ? position_.value : TensorView(); }
  Dropout dropout(const Pass& pass) const;

  EmbeddingOptions options_;
  Parameter token_, position_;
};

}  // namespace megalith
