#include "megalith/nn/embedding_layer.h"

#include "megalith/ops/elementwise.h"
#include "megalith/ops/embedding.h"

namespace megalith {

EmbeddingLayer::EmbeddingLayer(const EmbeddingOptions& options, const TensorParallel& tensor)
    : options_(options),
      tensor_(tensor),
      share_(options.vocabulary, options.padded_vocabulary, tensor),
      token_(make_vocabulary_table("embedding.token.weight", share_, options.hidden,
                                   options.standard_deviation, tensor)),
      position_(make_parameter("embedding.position.weight", {options.positions, options.hidden},
                               {Initialization::Kind::normal, options.standard_deviation}, true)) {
  position_.is_copy = tensor.rank() > 0;
}

Dropout EmbeddingLayer::dropout(const Pass& pass) const {
  return pass.dropout(options_.dropout, RandomUse::embedding_dropout, 0);
}

void EmbeddingLayer::forward(const Pass& pass, TensorView y) const {
  const TokenBatch& batch = pass.batch;
  if (tensor_.size() == 1) {
    embedding_forward(pass.exec, batch.token_ids, batch.positions, token_.value, position_table(),
                      dropout(pass), y);
    return;
  }
  ArenaScope scope(pass.exec.workspace);
  const TensorView tokens = pass.exec.workspace.allocate(y.dtype(), {batch.rows(), options_.hidden});
  embedding_lookup_part(pass.exec, batch.token_ids, token_.value, share_.part, tokens);
  tensor_.reduce(pass.exec, tokens);
  Dropout mask = dropout(pass);
  mask.first_position += static_cast<uint64_t>(tensor_.first_stream_row(batch.rows()));
  embedding_finish(pass.exec, tensor_.own_rows(tokens), tensor_.own_rows(batch.positions), position_table(),
                   mask, y);
}

void EmbeddingLayer::backward(const Pass& pass, TensorView dy) {
  ArenaScope scope(pass.exec.workspace);
  TensorView all = dy;
  if (tensor_.sequence_parallel()) {
    all = pass.exec.workspace.allocate(dy.dtype(), {pass.batch.rows(), options_.hidden});
    convert(pass.exec, dy, tensor_.own_rows(all));
    tensor_.gather(pass.exec, all);
  }
  TensorView token_gradient = token_.gradient;
  if (lookup_gradient_.empty()) {
    token_.start_gradient_zeroed(pass.exec);
  } else {
    token_gradient = lookup_gradient_;
    if (!lookup_started_) fill_zero(pass.exec, lookup_gradient_);
    lookup_started_ = true;
  }
  if (options_.positions > 0) position_.start_gradient_zeroed(pass.exec);
  embedding_backward(pass.exec, all, pass.batch.token_ids, share_.part, pass.batch.positions, dropout(pass),
                     token_gradient, options_.positions > 0 ? position_.gradient : TensorView());
}

void EmbeddingLayer::separate_lookup_gradient(TensorView buffer) {
  lookup_gradient_ = buffer.empty() ? buffer : buffer.reshape(token_.gradient.shape());
  lookup_started_ = false;
}

void EmbeddingLayer::add_lookup_gradient(const ExecContext& exec) {
  if (!lookup_started_) return;
  token_.start_gradient_zeroed(exec);
  add(exec, lookup_gradient_, token_.gradient);
  lookup_started_ = false;
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
