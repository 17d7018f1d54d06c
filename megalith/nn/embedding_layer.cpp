#include "megalith/nn/embedding_layer.h"

#include "megalith/ops/embedding.h"

namespace megalith {

EmbeddingLayer::EmbeddingLayer(const EmbeddingOptions& options)
    : options_(options),
      token_(make_parameter("embedding.token.weight", {options.vocabulary, options.hidden},
                            {Initialization::Kind::normal, options.standard_deviation}, true)),
      position_(make_parameter("embedding.position.weight", {options.positions, options.hidden},
                               {Initialization::Kind::normal, options.standard_deviation}, true)) {
  token_.allocated_rows = options.padded_vocabulary;
}

Dropout EmbeddingLayer::dropout(const Pass& pass) const {
  return pass.dropout(options_.dropout, RandomUse::embedding_dropout, 0);
}

void EmbeddingLayer::forward(const Pass& pass, TensorView y) const {
  embedding_forward(pass.exec, pass.batch.token_ids, pass.batch.positions, token_.value, position_table(),
                    dropout(pass), y);
}

void EmbeddingLayer::backward(const Pass& pass, TensorView dy) {
  token_.start_gradient_zeroed(pass.exec);
  if (options_.positions > 0) position_.start_gradient_zeroed(pass.exec);
  embedding_backward(pass.exec, dy, pass.batch.token_ids, pass.batch.positions, dropout(pass),
                     token_.gradient, options_.positions > 0 ? position_.gradient : TensorView());
}

void EmbeddingLayer::forward_only(const ExecContext& exec, TensorView token_ids, TensorView positions,
                                  TensorView y) const {
  embedding_forward(exec, token_ids, positions, token_.value, position_table(), Dropout(), y);
}

void EmbeddingLayer::visit(const ParameterVisitor& visitor) {
  visitor(token_);
  if (options_.positions > 0) visitor(position_);
}

}  // namespace megalith
