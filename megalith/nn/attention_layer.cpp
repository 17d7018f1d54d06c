#include "megalith/nn/attention_layer.h"

#include "megalith/nn/alibi.h"
#include "megalith/ops/head_norm.h"

namespace megalith {

namespace {

// Ranks hold copies, and each sums the gradient over its own heads.
Parameter make_head_norm(const std::string& name, int64_t head_size, const TensorParallel& tensor) {
  Parameter parameter = make_parameter(name, {head_size}, {Initialization::Kind::ones, 0}, false);
  parameter.is_copy = tensor.rank() > 0;
  parameter.gradient_is_partial = tensor.size() > 1;
  return parameter;
}

}  // namespace

AttentionLayer::AttentionLayer(const std::string& name, const AttentionLayerOptions& options,
                               const TensorParallel& tensor)
    : options_(options),
      heads_(options.heads / tensor.size()),
      kv_heads_(options.kv_heads / tensor.size()),
      first_head_(heads_ * tensor.rank()),
      packed_(name + ".query_key_value", options.hidden,
              {options.heads * options.head_size, options.kv_heads * options.head_size,
               options.kv_heads * options.head_size},
              options.qkv_bias, options.standard_deviation, tensor, "columns of attention heads"),
      query_norm_(make_head_norm(name + ".query_norm.weight", options.head_size, tensor)),
      key_norm_(make_head_norm(name + ".key_norm.weight", options.head_size, tensor)),
      output_(name + ".output", options.heads * options.head_size, options.hidden, options.output_bias,
              options.output_standard_deviation, tensor, "columns of attention heads"),
      rope_(options.rope) {
  check(options.heads % tensor.size() == 0 && options.kv_heads % tensor.size() == 0,
        "{} heads and {} key/value heads cannot be shared equally by {} tensor-parallel ranks", options.heads,
        options.kv_heads, tensor.size());
  if (options.alibi) {
    const std::vector<float> all = alibi_slopes(options.heads);
    slopes_.assign(all.begin() + first_head_, all.begin() + first_head_ + heads_);
  }
}

AttentionShape AttentionLayer::shape(int64_t batch, int64_t tokens) const {
  AttentionShape shape{
      batch, tokens, heads_, kv_heads_, options_.head_size, static_cast<float>(options_.scale)};
  shape.causal = options_.causal;
  shape.window = options_.window;
  shape.softcap = static_cast<float>(options_.softcap);
  if (!slopes_.empty()) shape.slopes = {const_cast<float*>(slopes_.data()), DType::f32, {heads_}};
  return shape;
}

// The mask of a head is that of its number in the whole layer.
Dropout AttentionLayer::dropout(const Pass& pass) const {
  Dropout dropout = pass.dropout(options_.dropout, RandomUse::attention_dropout, options_.layer);
  dropout.first_element = static_cast<uint64_t>(first_head_ * pass.batch.tokens);
  return dropout;
}

void AttentionLayer::project(const ExecContext& exec, const AttentionShape& shape, TensorView x,
                             TensorView positions, int64_t length, TensorView qkv, TensorView before,
                             TensorView rstd) const {
  packed_.forward(exec, x, qkv);
  if (options_.qk_norm) {
    head_norm_forward(exec, shape, query_norm_.value, key_norm_.value,
                      static_cast<float>(options_.qk_norm_epsilon), qkv, before, rstd);
  }
  if (rope_.rotates()) {
    ArenaScope scope(exec.workspace);
    rope(exec, shape, RopeStyle::half, positions, rope_.angles(exec, length), false, qkv);
  }
}

void AttentionLayer::forward(const Pass& pass, TensorView x, TensorView y) const {
  const AttentionShape s = shape(pass.batch.batch, pass.batch.tokens);
  const int64_t rows = pass.batch.rows(), normalized_heads = s.heads + s.kv_heads;
  const TensorView qkv = pass.saved.push(x.dtype(), {rows, s.packed_columns()});
  TensorView before, rstd;
  if (options_.qk_norm) {
    before = pass.saved.push(x.dtype(), {rows, normalized_heads * s.head_size});
    rstd = pass.saved.push(DType::f32, {rows * normalized_heads});
  }
  project(pass.exec, s, x, pass.batch.positions, s.tokens, qkv, before, rstd);
  const TensorView out = pass.saved.push(x.dtype(), {rows, s.heads * s.head_size});
  const TensorView log_sum_exp = pass.saved.push(DType::f32, {s.batch, s.heads, s.tokens});
  attention_forward(pass.exec, s, qkv, pass.batch.document_starts, dropout(pass), out, log_sum_exp);
  if (!y.empty()) output_.forward(pass.exec, out, y);
}

void AttentionLayer::backward(const Pass& pass, TensorView dy, TensorView x, TensorView dx) {
  const ExecContext& exec = pass.exec;
  const AttentionShape s = shape(pass.batch.batch, pass.batch.tokens);
  const TensorView log_sum_exp = pass.saved.pop();
  const TensorView out = pass.saved.pop();
  const TensorView rstd = options_.qk_norm ? pass.saved.pop() : TensorView();
  const TensorView before = options_.qk_norm ? pass.saved.pop() : TensorView();
  const TensorView qkv = pass.saved.pop();
  ArenaScope scope(exec.workspace);
  const TensorView dout = exec.workspace.allocate(dy.dtype(), out.shape());
  output_.backward(exec, dy, out, dout);
  const TensorView dqkv = exec.workspace.allocate(dy.dtype(), qkv.shape());
  attention_backward(exec, s, qkv, pass.batch.document_starts, dropout(pass), out, log_sum_exp, dout, dqkv);
  if (rope_.rotates()) {
    rope(exec, s, RopeStyle::half, pass.batch.positions, rope_.angles(exec, s.tokens), true, dqkv);
  }
  if (options_.qk_norm) {
    query_norm_.start_gradient_zeroed(exec);
    key_norm_.start_gradient_zeroed(exec);
    head_norm_backward(exec, s, query_norm_.value, key_norm_.value, before, rstd, dqkv, query_norm_.gradient,
                       key_norm_.gradient);
  }
  packed_.backward(exec, dqkv, x, dx);
}

void AttentionLayer::forward_only(const ExecContext& exec, const TokenBatch& batch, TensorView x,
                                  TensorView y) const {
  const AttentionShape s = shape(batch.batch, batch.tokens);
  ArenaScope scope(exec.workspace);
  const TensorView qkv = exec.workspace.allocate(x.dtype(), {x.rows(), s.packed_columns()});
  project(exec, s, x, batch.positions, s.tokens, qkv, {}, {});
  const TensorView out = exec.workspace.allocate(x.dtype(), {x.rows(), s.heads * s.head_size});
  const TensorView log_sum_exp = exec.workspace.allocate(DType::f32, {s.batch, s.heads, s.tokens});
  attention_forward(exec, s, qkv, batch.document_starts, {}, out, log_sum_exp);
  output_.forward(exec, out, y);
}

void AttentionLayer::forward_cached(const ExecContext& exec, TensorView x, TensorView positions,
                                    int64_t sequence_length, int64_t past, LayerCache& cache,
                                    TensorView y) const {
  const AttentionShape s = shape(1, x.rows());
  ArenaScope scope(exec.workspace);
  const TensorView qkv = exec.workspace.allocate(x.dtype(), {x.rows(), s.packed_columns()});
  project(exec, s, x, positions, sequence_length, qkv, {}, {});
  const TensorView out = exec.workspace.allocate(x.dtype(), {x.rows(), s.heads * s.head_size});
  attention_with_cache(exec, s, qkv, past, cache.keys, cache.values, out);
  output_.forward(exec, out, y);
}

void AttentionLayer::visit(const ParameterVisitor& visitor) {
  packed_.visit(visitor);
  if (options_.qk_norm) {
    visitor(query_norm_);
    visitor(key_norm_);
  }
  output_.visit(visitor);
}

size_t AttentionLayer::saved_bytes(int64_t rows, size_t element) const {
  const int64_t normalized_heads = options_.qk_norm ? heads_ + kv_heads_ : 0;
  const int64_t columns = (2 * heads_ + 2 * kv_heads_ + normalized_heads) * options_.head_size;
  return static_cast<size_t>(rows) *
         (static_cast<size_t>(columns) * element + static_cast<size_t>(heads_ + normalized_heads) * 4);
}

}  // namespace megalith
