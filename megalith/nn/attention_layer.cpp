#include "megalith/nn/attention_layer.h"

#include <cmath>

namespace megalith {

AttentionLayer::AttentionLayer(const std::string& name, const AttentionLayerOptions& options,
                               const TensorParallel& tensor)
    : options_(options),
      heads_(options.heads / tensor.size()),
      kv_heads_(options.kv_heads / tensor.size()),
      first_head_(heads_ * tensor.rank()),
      packed_(name + ".query_key_value", options.hidden,
              {options.heads * options.head_size, options.kv_heads * options.head_size,
               options.kv_heads * options.head_size},
              options.bias, options.standard_deviation, tensor, "columns of attention heads"),
      output_(name + ".output", options.heads * options.head_size, options.hidden, options.bias,
              options.output_standard_deviation, tensor, "columns of attention heads") {
  check(options.heads % tensor.size() == 0 && options.kv_heads % tensor.size() == 0,
        "{} heads and {} key/value heads cannot be shared equally by {} tensor-parallel ranks", options.heads,
        options.kv_heads, tensor.size());
  for (int64_t i = 0; i < options.rotary_columns / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(options.rotary_columns);
    inverse_frequency_.push_back(static_cast<float>(std::pow(options.rotary_base, -exponent)));
  }
}

AttentionShape AttentionLayer::shape(int64_t batch, int64_t tokens) const {
  return {batch,
          tokens,
          heads_,
          kv_heads_,
          options_.head_size,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(options_.head_size)))};
}

TensorView AttentionLayer::inverse_frequency() const {
  return {const_cast<float*>(inverse_frequency_.data()),
          DType::f32,
          {static_cast<int64_t>(inverse_frequency_.size())}};
}

// The mask of a head is that of its number in the whole layer.
Dropout AttentionLayer::dropout(const Pass& pass) const {
  Dropout dropout = pass.dropout(options_.dropout, RandomUse::attention_dropout, options_.layer);
  dropout.first_element = static_cast<uint64_t>(first_head_ * pass.batch.tokens);
  return dropout;
}

void AttentionLayer::forward(const Pass& pass, TensorView x, TensorView y) const {
  const AttentionShape s = shape(pass.batch.batch, pass.batch.tokens);
  const int64_t rows = pass.batch.rows();
  const TensorView qkv = pass.saved.push(x.dtype(), {rows, s.packed_columns()});
  packed_.forward(pass.exec, x, qkv);
  if (options_.rotary_columns > 0) {
    rope(pass.exec, s, RopeStyle::half, pass.batch.positions, inverse_frequency(), false, qkv);
  }
  const TensorView out = pass.saved.push(x.dtype(), {rows, s.heads * s.head_size});
  const TensorView log_sum_exp = pass.saved.push(DType::f32, {s.batch, s.heads, s.tokens});
  attention_forward(pass.exec, s, qkv, pass.batch.document_starts, dropout(pass), out, log_sum_exp);
  if (!y.empty()) output_.forward(pass.exec, out, y);
}

void AttentionLayer::backward(const Pass& pass, TensorView dy, TensorView x, TensorView dx) {
  const AttentionShape s = shape(pass.batch.batch, pass.batch.tokens);
  const TensorView log_sum_exp = pass.saved.pop();
  const TensorView out = pass.saved.pop();
  const TensorView qkv = pass.saved.pop();
  ArenaScope scope(pass.exec.workspace);
  const TensorView dout = pass.exec.workspace.allocate(dy.dtype(), out.shape());
  output_.backward(pass.exec, dy, out, dout);
  const TensorView dqkv = pass.exec.workspace.allocate(dy.dtype(), qkv.shape());
  attention_backward(pass.exec, s, qkv, pass.batch.document_starts, dropout(pass), out, log_sum_exp, dout,
                     dqkv);
  if (options_.rotary_columns > 0) {
    rope(pass.exec, s, RopeStyle::half, pass.batch.positions, inverse_frequency(), true, dqkv);
  }
  packed_.backward(pass.exec, dqkv, x, dx);
}

void AttentionLayer::forward_cached(const ExecContext& context, TensorView x, TensorView positions,
                                    int64_t past, LayerCache& cache, TensorView y) const {
  const AttentionShape s = shape(1, x.rows());
  ArenaScope scope(context.workspace);
  const TensorView qkv = context.workspace.allocate(x.dtype(), {x.rows(), s.packed_columns()});
  packed_.forward(context, x, qkv);
  if (options_.rotary_columns > 0) {
    rope(context, s, RopeStyle::half, positions, inverse_frequency(), false, qkv);
  }
  const TensorView out = context.workspace.allocate(x.dtype(), {x.rows(), s.heads * s.head_size});
  attention_with_cache(context, s, qkv, past, cache.keys, cache.values, out);
  output_.forward(context, out, y);
}

void AttentionLayer::visit(const ParameterVisitor& visitor) {
  packed_.visit(visitor);
  output_.visit(visitor);
}

size_t AttentionLayer::saved_bytes(int64_t rows, size_t element) const {
  const int64_t columns = (2 * heads_ + 2 * kv_heads_) * options_.head_size;
  return static_cast<size_t>(rows) *
         (static_cast<size_t>(columns) * element + static_cast<size_t>(heads_) * 4);
}

}  // namespace megalith
