#include "megalith/model/transformer.h"

#include <cmath>
#include <utility>

namespace megalith {

namespace {

BlockOptions block_options(const ModelConfig& config, int64_t layer) {
  const float std = static_cast<float>(config.init_std);
  const float output_std =
      config.scaled_init
          ? static_cast<float>(config.init_std / std::sqrt(2.0 * static_cast<double>(config.num_layers)))
          : std;
  BlockOptions options;
  options.attention.layer = layer;
  options.attention.hidden = config.hidden_size;
  options.attention.heads = config.num_heads;
  options.attention.kv_heads = config.num_kv_heads;
  options.attention.head_size = config.head_size;
  options.attention.bias = config.bias;
  options.attention.standard_deviation = std;
  options.attention.output_standard_deviation = output_std;
  options.attention.dropout = config.attention_dropout;
  options.attention.rotary_columns = config.rotary_columns();
  options.attention.rotary_base = config.rope_base;
  options.feed_forward.hidden = config.hidden_size;
  options.feed_forward.inner = config.ffn_hidden_size;
  options.feed_forward.activation = config.activation;
  options.feed_forward.bias = config.bias;
  options.feed_forward.standard_deviation = std;
  options.feed_forward.output_standard_deviation = output_std;
  options.branch.norm = config.norm;
  options.branch.norm_bias = config.bias && config.norm == NormKind::layer;
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
  options.standard_deviation = static_cast<float>(config.init_std);
  options.dropout = config.embedding_dropout;
  return options;
}

HeadOptions head_options(const ModelConfig& config) {
  HeadOptions options;
  options.vocabulary = config.vocab_size;
  options.padded_vocabulary = config.padded_vocabulary();
  options.hidden = config.hidden_size;
  options.tied = config.tied_embeddings;
  options.standard_deviation = static_cast<float>(config.init_std);
  options.norm = config.norm;
  options.norm_bias = config.bias && config.norm == NormKind::layer;
  options.norm_epsilon = config.norm_epsilon;
  return options;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const TensorParallel& tensor)
    : config_(config),
      tensor_(tensor),
      embedding_(embedding_options(config), tensor),
      head_(head_options(config), &embedding_.token_table(), tensor) {
  blocks_.reserve(static_cast<size_t>(config.num_layers));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    blocks_.emplace_back("layers." + std::to_string(layer), block_options(config, layer), tensor);
  }
}

void Transformer::loss(const Pass& pass, TensorView losses) const {
  // Blocks that are to be recomputed leave nothing saved, so two buffers take turns.
  const Pass forward{pass.exec, pass.batch, pass.saved, Recompute::full, pass.training, pass.seed};
  ArenaScope scope(pass.exec.workspace);
  const DType dtype = embedding_.token_table().value.dtype();
  const Shape shape{tensor_.stream_rows(pass.batch.rows()), config_.hidden_size};
  TensorView x = pass.exec.workspace.allocate(dtype, shape);
  TensorView y = pass.exec.workspace.allocate(dtype, shape);
  embedding_.forward(forward, x);
  for (const Block& block : blocks_) {
    block.forward(forward, x, y);
    std::swap(x, y);
  }
  head_.loss(forward, x, losses);
}

void Transformer::loss_and_gradient(const Pass& pass, TensorView losses) {
  Saved& saved = pass.saved;
  const DType dtype = embedding_.token_table().value.dtype();
  const Shape shape{tensor_.stream_rows(pass.batch.rows()), config_.hidden_size};
  TensorView x = saved.push(dtype, shape);
  embedding_.forward(pass, x);
  for (const Block& block : blocks_) {
    const TensorView y = saved.push(dtype, shape);
    block.forward(pass, x, y);
    saved.keep(x);
    x = y;
  }
  ArenaScope scope(pass.exec.workspace);
  const TensorView d = pass.exec.workspace.allocate(dtype, shape);
  head_.loss_and_gradient(pass, x, losses, d);
  for (size_t layer = blocks_.size(); layer-- > 0;) {
    const TensorView input = saved.pop();
    blocks_[layer].backward(pass, input, d);
    saved.pop();  // the block's output
  }
  embedding_.backward(pass, d);
  saved.pop();
  saved.release();
}

void Transformer::forward_cached(const ExecContext& exec, TensorView token_ids, ModelCache& cache,
                                 TensorView logits) const {
  check(tensor_.size() == 1, "generation runs on whole models, not on the part of a tensor-parallel rank");
  const int64_t tokens = token_ids.rows() * token_ids.columns();
  check(cache.length + tokens <= cache.capacity, "{} tokens do not fit a cache of {} that holds {}", tokens,
        cache.capacity, cache.length);
  check(config_.positions != PositionKind::learned || cache.length + tokens <= config_.max_positions,
        "{} tokens are more than the model's {} positions", cache.length + tokens, config_.max_positions);
  ArenaScope scope(exec.workspace);
  const TensorView positions = exec.workspace.allocate(DType::i32, {tokens});
  for (int64_t t = 0; t < tokens; ++t) positions.data<int32_t>()[t] = static_cast<int32_t>(cache.length + t);
  const TensorView x =
      exec.workspace.allocate(embedding_.token_table().value.dtype(), {tokens, config_.hidden_size});
  embedding_.forward_only(exec, token_ids, positions, x);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    blocks_[layer].forward_cached(exec, positions, cache.length, cache.layers[layer], x);
  }
  cache.length += tokens;
  if (logits.empty()) return;
  head_.logits(exec, x.slice(tokens - logits.rows(), tokens), logits);
}

void Transformer::walk(const ParameterVisitor& visitor) {
  embedding_.visit(visitor);
  for (Block& block : blocks_) block.visit(visitor);
  head_.visit(visitor);
}

size_t Transformer::activation_bytes(int64_t rows, size_t element, Recompute recompute) const {
  const size_t stream = static_cast<size_t>(tensor_.stream_rows(rows) * config_.hidden_size) * element;
  const size_t layers = static_cast<size_t>(config_.num_layers);
  const Block& block = blocks_.front();
  return stream * (layers + 1) + layers * block.saved_bytes(rows, element, recompute) +
         block.recomputed_bytes(rows, element, recompute);
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
