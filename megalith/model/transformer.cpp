#include "megalith/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace megalith {

namespace {

AttentionLayerOptions attention_options(const ModelConfig& config, int64_t layer) {
  const bool windowed = config.layer_has_window(layer);
  AttentionLayerOptions options;
  options.layer = layer;
  options.hidden = config.hidden_size;
  options.heads = config.num_heads;
  options.kv_heads = config.num_kv_heads;
  options.head_size = config.head_size;
  options.qkv_bias = config.has_bias(config.qkv_bias);
  options.output_bias = config.has_bias(config.attention_output_bias);
  options.dropout = config.attention_dropout;
  options.scale = config.resolved_attention_scale();
  options.causal = config.causal;
  options.window = windowed ? config.window : 0;
  options.softcap = config.attention_softcap;
  options.alibi = config.positions == PositionKind::alibi;
  options.qk_norm = config.qk_norm;
  options.qk_norm_epsilon = config.norm_epsilon;
  options.rope = config.rope_options(windowed);
  return options;
}

BlockOptions block_options(const ModelConfig& config, int64_t layer) {
  const float std = static_cast<float>(config.init_std);
  const float output_std =
      config.scaled_init
          ? static_cast<float>(config.init_std / std::sqrt(2.0 * static_cast<double>(config.num_layers)))
          : std;
  BlockOptions options;
  options.attention = attention_options(config, layer);
  options.attention.standard_deviation = std;
  options.attention.output_standard_deviation = output_std;
  options.feed_forward.hidden = config.hidden_size;
  options.feed_forward.inner = config.ffn_hidden_size;
  options.feed_forward.activation = config.activation;
  options.feed_forward.bias = config.has_bias(config.ffn_bias);
  options.feed_forward.standard_deviation = std;
  options.feed_forward.output_standard_deviation = output_std;
  options.branches = config.branches;
  options.branch.placement = config.norm_placement;
  options.branch.norm = config.norm;
  options.branch.norm_bias = config.has_norm_bias();
  options.branch.norm_epsilon = config.norm_epsilon;
  options.branch.dropout = config.hidden_dropout;
  options.branch.layer = layer;
  return options;
}

EmbeddingOptions embedding_options(const ModelConfig& config) {
  EmbeddingOptions options;
  options.vocabulary = config.vocab_size;
  options.padded_vocabulary = config.padded_vocabulary();
  options.hidden = config.hidden_size;
  options.positions = config.positions == PositionKind::learned ? config.max_positions : 0;
  options.token_types = config.token_types;
  options.scale = config.embedding_scale;
  options.standard_deviation = static_cast<float>(config.init_std);
  options.dropout = config.embedding_dropout;
  options.has_norm = config.embedding_norm;
  options.norm = config.norm;
  options.norm_bias = config.has_norm_bias();
  options.norm_epsilon = config.norm_epsilon;
  return options;
}

HeadOptions head_options(const ModelConfig& config) {
  HeadOptions options;
  options.vocabulary = config.vocab_size;
  options.padded_vocabulary = config.padded_vocabulary();
  options.hidden = config.hidden_size;
  options.has_projection = config.head != HeadKind::none;
  options.has_bias = config.head_bias;
  options.tied = config.tied_embeddings;
  options.standard_deviation = static_cast<float>(config.init_std);
  options.has_final_norm = config.final_norm;
  options.norm = config.norm;
  options.norm_bias = config.has_norm_bias();
  options.norm_epsilon = config.norm_epsilon;
  options.logit_rule = {static_cast<float>(config.logit_scale), static_cast<float>(config.logit_softcap)};
  if (config.head == HeadKind::masked_language_model) {
    options.transform = {config.hidden_size, config.activation,      options.standard_deviation,
                         config.norm,        config.has_norm_bias(), config.norm_epsilon};
  }
  return options;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const TensorParallel& tensor, const ModelSlice& slice)
    : config_(config), tensor_(tensor), slice_(slice) {
  if (slice.has_embedding) embedding_.emplace(embedding_options(config), tensor);
  blocks_.reserve(static_cast<size_t>(slice.layers()));
  for (int64_t layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    blocks_.emplace_back("layers." + std::to_string(layer), block_options(config, layer), tensor);
  }
  if (slice.has_head) {
    head_.emplace(head_options(config), slice.has_embedding ? &embedding_->token_table() : nullptr, tensor);
    if (config.pooler) pooler_.emplace(config.hidden_size, static_cast<float>(config.init_std), tensor);
  }
}

TensorView Transformer::begin(const Pass& pass, DType dtype) const {
  return pass.saved.push(dtype, {tensor_.stream_rows(pass.batch.rows()), config_.hidden_size});
}

TensorView Transformer::forward(const Pass& pass, TensorView x) const {
  Saved& saved = pass.saved;
  int64_t unit = pass.first_unit;
  const auto next_unit = [&] {
    if (pass.units != nullptr) pass.units->before_forward(unit++);
  };
  if (embedding_) {
    next_unit();
    embedding_->forward(pass, x);
  }
  for (const Block& block : blocks_) {
    const TensorView y = saved.push(x.dtype(), x.shape());
    next_unit();
    block.forward(pass, x, y);
    saved.keep(x);
    x = y;
  }
  return x;
}

void Transformer::head_backward(const Pass& pass, TensorView y, TensorView losses, TensorView d) {
  const int64_t unit = pass.first_unit + units() - 1;
  if (pass.units != nullptr) pass.units->before_backward(unit);
  head_->loss_and_gradient(pass, y, losses, d);
  if (pass.units != nullptr) pass.units->after_backward(unit);
}

void Transformer::backward(const Pass& pass, TensorView d) {
  Saved& saved = pass.saved;
  int64_t unit = pass.first_unit + units() - (head_ ? 1 : 0);
  const auto observed = [&](auto&& backward) {
    --unit;
    if (pass.units != nullptr) pass.units->before_backward(unit);
    backward();
    if (pass.units != nullptr) pass.units->after_backward(unit);
  };
  for (size_t layer = blocks_.size(); layer-- > 0;) {
    const TensorView input = saved.pop();
    observed([&] { blocks_[layer].backward(pass, input, d); });
    saved.pop();  // the block's output
  }
  if (embedding_) observed([&] { embedding_->backward(pass, d); });
  saved.pop();
  saved.release();
}

TensorView Transformer::forward_only(const Pass& pass, TensorView x, TensorView y) const {
  // Blocks that are to be recomputed leave nothing saved.
  const Pass forward{pass.exec, pass.batch, pass.saved, Recompute::full, pass.training, pass.seed};
  int64_t unit = pass.first_unit;
  const auto next_unit = [&] {
    if (pass.units != nullptr) pass.units->before_forward(unit++);
  };
  if (embedding_) {
    next_unit();
    const size_t before = pass.saved.size();
    embedding_->forward(forward, x);
    pass.saved.truncate(before);
  }
  for (const Block& block : blocks_) {
    next_unit();
    block.forward(forward, x, y);
    std::swap(x, y);
  }
  return x;
}

void Transformer::head_loss(const Pass& pass, TensorView y, TensorView losses) const {
  if (pass.units != nullptr) pass.units->before_forward(pass.first_unit + units() - 1);
  head_->loss(pass, y, losses);
}

void Transformer::loss(const Pass& pass, TensorView losses) const {
  ArenaScope scope(pass.exec.workspace);
  const DType dtype = embedding_->token_table().compute_type();
  const Shape shape{tensor_.stream_rows(pass.batch.rows()), config_.hidden_size};
  const TensorView x = pass.exec.workspace.allocate(dtype, shape);
  const TensorView y = pass.exec.workspace.allocate(dtype, shape);
  head_loss(pass, forward_only(pass, x, y), losses);
}

void Transformer::check_whole(const char* what) const {
  check(tensor_.size() == 1 && embedding_ && head_, "{} runs on whole models, not on the part of a rank",
        what);
}

void Transformer::forward_cached(const ExecContext& exec, TensorView token_ids, ModelCache& cache,
                                 TensorView logits) const {
  check_whole("generation");
  check_input(
      config_.causal,
      "this model is an encoder (model.causal = false): its tokens see those behind them, so it cannot "
      "generate token by token");
  const int64_t tokens = token_ids.rows() * token_ids.columns();
  check(cache.length + tokens <= cache.capacity, "{} tokens do not fit a cache of {} that holds {}", tokens,
        cache.capacity, cache.length);
  check(config_.positions != PositionKind::learned || cache.length + tokens <= config_.max_positions,
        "{} tokens are more than the model's {} positions", cache.length + tokens, config_.max_positions);
  const int64_t sequence_length = std::max(cache.length + tokens, cache.whole_length);
  ArenaScope scope(exec.workspace);
  const TensorView positions = exec.workspace.allocate(DType::i32, {tokens});
  for (int64_t t = 0; t < tokens; ++t) positions.data<int32_t>()[t] = static_cast<int32_t>(cache.length + t);
  const TensorView x =
      exec.workspace.allocate(embedding_->token_table().compute_type(), {tokens, config_.hidden_size});
  TokenBatch batch;
  batch.batch = 1;
  batch.tokens = tokens;
  batch.token_ids = token_ids;
  batch.positions = positions;
  embedding_->forward_only(exec, batch, x);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    blocks_[layer].forward_cached(exec, positions, sequence_length, cache.length, cache.layers[layer], x);
  }
  cache.length += tokens;
  if (logits.empty()) return;
  const TensorView last = x.slice(tokens - logits.rows(), tokens);
  const TensorView hidden = exec.workspace.allocate(x.dtype(), last.shape());
  head_->hidden_states(exec, last, hidden);
  head_->logits(exec, hidden, logits);
}

void Transformer::encode(const ExecContext& exec, const TokenBatch& batch, TensorView hidden) const {
  check_whole("encoding");
  ArenaScope scope(exec.workspace);
  const TensorView x = exec.workspace.allocate(hidden.dtype(), {batch.rows(), config_.hidden_size});
  embedding_->forward_only(exec, batch, x);
  for (const Block& block : blocks_) block.forward_only(exec, batch, x);
  head_->hidden_states(exec, x, hidden);
}

void Transformer::logits(const ExecContext& exec, TensorView hidden, TensorView logits) const {
  check_whole("the output head");
  head_->logits(exec, hidden, logits);
}

void Transformer::pool(const ExecContext& exec, TensorView first, TensorView pooled) const {
  check(pooler_.has_value(), "this model has no pooler");
  pooler_->forward(exec, first, pooled);
}

void Transformer::walk(const ParameterVisitor& visitor) {
  for (int64_t unit = 0; unit < units(); ++unit) walk_unit(unit, visitor);
}

int64_t Transformer::units() const {
  return static_cast<int64_t>(blocks_.size()) + (embedding_ ? 1 : 0) + (head_ ? 1 : 0);
}

void Transformer::walk_unit(int64_t unit, const ParameterVisitor& visitor) {
  if (embedding_ && unit-- == 0) return embedding_->visit(visitor);
  if (unit == static_cast<int64_t>(blocks_.size())) {
    head_->visit(visitor);
    if (pooler_) pooler_->visit(visitor);
    return;
  }
  blocks_[static_cast<size_t>(unit)].visit(visitor);
}

size_t Transformer::kept_bytes(int64_t rows, size_t element, Recompute recompute) const {
  const size_t stream = static_cast<size_t>(tensor_.stream_rows(rows) * config_.hidden_size) * element;
  size_t bytes = stream + (embedding_ ? embedding_->saved_bytes(rows, element) : 0);
  for (const Block& block : blocks_) bytes += stream + block.saved_bytes(rows, element, recompute);
  return bytes;
}

size_t Transformer::transient_bytes(int64_t rows, size_t element, Recompute recompute) const {
  return blocks_.empty() ? 0 : blocks_.front().recomputed_bytes(rows, element, recompute);
}

ModelCache make_cache(const ModelConfig& config, DType dtype, int64_t capacity, Arena& arena) {
  ModelCache cache;
  cache.capacity = capacity;
  const Shape shape{capacity, config.num_kv_heads * config.head_size};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    cache.layers.push_back({arena.allocate(dtype, shape), arena.allocate(dtype, shape)});
  }
  return cache;
}

}  // namespace megalith
