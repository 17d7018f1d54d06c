#include "megalith/nn/embedding_layer.h"

#include "megalith/ops/elementwise.h"

namespace megalith {

EmbeddingLayer::EmbeddingLayer(const EmbeddingOptions& options, const TensorParallel& tensor)
    : options_(options),
      tensor_(tensor),
      share_(options.vocabulary, options.padded_vocabulary, tensor),
      token_(make_vocabulary_table("embedding.token.weight", share_, options.hidden,
                                   options.standard_deviation, tensor)),
      position_(make_parameter("embedding.position.weight", {options.positions, options.hidden},
                               {Initialization::Kind::normal, options.standard_deviation}, true)),
      type_(make_parameter("embedding.token_type.weight", {options.token_types, options.hidden},
                           {Initialization::Kind::normal, options.standard_deviation}, true)) {
  position_.is_copy = type_.is_copy = tensor.rank() > 0;
  if (options.has_norm) {
    norm_.emplace("embedding.norm", options.norm, options.hidden, options.norm_bias, options.norm_epsilon,
                  tensor);
  }
}

Dropout EmbeddingLayer::dropout(const Pass& pass) const {
  Dropout dropout = pass.dropout(options_.dropout, RandomUse::embedding_dropout, 0);
  dropout.first_position += static_cast<uint64_t>(tensor_.first_stream_row(pass.batch.rows()));
  return dropout;
}

AddedEmbeddings EmbeddingLayer::added(const TokenBatch& batch) const {
  AddedEmbeddings added;
  if (options_.positions > 0) {
    added.positions = tensor_.own_rows(batch.positions);
    added.position_table = position_.value;
  }
  if (options_.token_types > 0) {
    if (!batch.token_types.empty()) added.types = tensor_.own_rows(batch.token_types);
    added.type_table = type_.value;
  }
  return added;
}

void EmbeddingLayer::embed(const ExecContext& exec, const TokenBatch& batch, const Dropout& mask,
                           TensorView y) const {
  const float scale = static_cast<float>(options_.scale);
  if (token_.encoded == nullptr) {
    embedding_forward(exec, batch.token_ids, token_.value, scale, added(batch), mask, y);
    return;
  }
  ArenaScope scope(exec.workspace);
  const TensorView tokens = exec.workspace.allocate(DType::f32, {batch.rows(), options_.hidden});
  look_up(exec, batch.token_ids, *token_.encoded, tokens);
  embedding_finish(exec, tokens, scale, added(batch), mask, y);
}

void EmbeddingLayer::forward(const Pass& pass, TensorView y) const {
  const TokenBatch& batch = pass.batch;
  const TensorView sum = norm_ ? pass.saved.push(y.dtype(), y.shape()) : y;
  const Dropout mask = norm_ ? Dropout() : dropout(pass);
  if (tensor_.size() == 1) {
    embed(pass.exec, batch, mask, sum);
  } else {
    ArenaScope scope(pass.exec.workspace);
    const TensorView tokens = pass.exec.workspace.allocate(y.dtype(), {batch.rows(), options_.hidden});
    embedding_lookup_part(pass.exec, batch.token_ids, token_.value, share_.part, tokens);
    tensor_.reduce(pass.exec, tokens);
    embedding_finish(pass.exec, tensor_.own_rows(tokens), static_cast<float>(options_.scale), added(batch),
                     mask, sum);
  }
  if (!norm_) return;
  norm_->forward(pass.exec, sum, y, pass.saved);
  pass.saved.keep(sum);
  dropout_backward(pass.exec, y, dropout(pass), y);
}

void EmbeddingLayer::backward(const Pass& pass, TensorView dy) {
  const ExecContext& exec = pass.exec;
  ArenaScope scope(exec.workspace);
  Dropout mask = pass.dropout(options_.dropout, RandomUse::embedding_dropout, 0);  // of all rows
  if (norm_) {
    const TensorView sum = pass.saved.pop();
    dropout_backward(exec, dy, dropout(pass), dy);
    mask = Dropout();
    const TensorView d_sum = exec.workspace.allocate(dy.dtype(), dy.shape());
    fill_zero(exec, d_sum);
    norm_->backward(exec, dy, sum, d_sum, pass.saved);
    pass.saved.pop();
    dy = d_sum;
  }
  TensorView all = dy;
  if (tensor_.sequence_parallel()) {
    all = exec.workspace.allocate(dy.dtype(), {pass.batch.rows(), options_.hidden});
    convert(exec, dy, tensor_.own_rows(all));
    tensor_.gather(exec, all);
  }
  TensorView token_gradient = token_.gradient;
  if (lookup_gradient_.empty()) {
    token_.start_gradient_zeroed(exec);
  } else {
    token_gradient = lookup_gradient_;
    if (!lookup_started_) fill_zero(exec, lookup_gradient_);
    lookup_started_ = true;
  }
  AddedEmbeddings d_added{pass.batch.positions, {}, pass.batch.token_types, {}};
  if (options_.positions > 0) {
    position_.start_gradient_zeroed(exec);
    d_added.position_table = position_.gradient;
  }
  if (options_.token_types > 0) {
    type_.start_gradient_zeroed(exec);
    d_added.type_table = type_.gradient;
  }
  embedding_backward(exec, all, pass.batch.token_ids, share_.part, static_cast<float>(options_.scale), mask,
                     token_gradient, d_added);
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

void EmbeddingLayer::forward_only(const ExecContext& exec, const TokenBatch& batch, TensorView y) const {
  embed(exec, batch, Dropout(), y);
  if (norm_) norm_->forward_only(exec, y, y);
}

void EmbeddingLayer::visit(const ParameterVisitor& visitor) {
  visitor(token_);
  if (options_.positions > 0) visitor(position_);
  if (options_.token_types > 0) visitor(type_);
  if (norm_) norm_->visit(visitor);
}

size_t EmbeddingLayer::saved_bytes(int64_t rows, size_t element) const {
  if (!norm_) return 0;
  const int64_t stream = tensor_.stream_rows(rows);
  return static_cast<size_t>(stream * options_.hidden) * element + norm_->saved_bytes(stream);
}

}  // namespace megalith
