#include "megalith/ops/attention.h"

#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/mask_source.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

const cpu::AttentionKernels& kernels_of(DType dtype) {
  return cpu::kernels().attention[cpu::type_index(dtype)];
}

void check_shape(const AttentionShape& shape, const char* operation) {
  check(shape.batch > 0 && shape.tokens > 0 && shape.heads > 0 && shape.kv_heads > 0 && shape.head_size > 0,
        "{}: batch {}, tokens {}, heads {}, kv_heads {}, head_size {} must be positive", operation,
        shape.batch, shape.tokens, shape.heads, shape.kv_heads, shape.head_size);
  check(shape.heads % shape.kv_heads == 0, "{}: {} heads cannot share {} key/value heads", operation,
        shape.heads, shape.kv_heads);
  check(shape.window >= 0 && shape.softcap >= 0, "{}: window {} and soft cap {} must not be negative",
        operation, shape.window, shape.softcap);
  if (shape.slopes.empty()) return;
  expect(shape.slopes, DType::f32, {shape.heads}, operation, "slopes");
  check(shape.softcap == 0, "{}: ALiBi slopes and a soft cap cannot be combined", operation);
}

void check_operands(const AttentionShape& shape, const TensorView& qkv, const TensorView& document_starts,
                    const TensorView& out, const TensorView& log_sum_exp, const char* operation) {
  check_shape(shape, operation);
  const int64_t rows = shape.batch * shape.tokens;
  expect(qkv, qkv.dtype(), {rows, shape.packed_columns()}, operation, "qkv");
  expect(out, qkv.dtype(), {rows, shape.heads * shape.head_size}, operation, "out");
  expect(log_sum_exp, DType::f32, {shape.batch, shape.heads, shape.tokens}, operation, "log_sum_exp");
  if (document_starts.empty()) return;
  expect(document_starts, DType::i32, {shape.batch, shape.tokens}, operation, "document_starts");
  const int32_t* starts = document_starts.data<int32_t>();
  for (int64_t i = 0; i < rows; ++i) {
    check(starts[i] >= 0 && starts[i] <= i % shape.tokens,
          "{}: document start {} of token {} in batch row {} lies outside 0 .. {}", operation, starts[i],
          i % shape.tokens, i / shape.tokens, i % shape.tokens);
  }
}

cpu::AttentionGeometry geometry_of(const AttentionShape& shape) {
  return {shape.tokens,           shape.heads,
          shape.kv_heads,         shape.head_size,
          shape.packed_columns(), shape.scale,
          shape.softcap,          shape.slopes.empty() ? nullptr : shape.slopes.data<float>()};
}

/// What the query at `query` sees of the keys [begin, end) of its document.
cpu::KeyRange visible_keys(const AttentionShape& shape, int64_t query, int64_t begin, int64_t end) {
  if (shape.causal) end = query + 1;
  if (shape.window > 0) {
    begin = std::max(begin, query + 1 - shape.window);
    end = std::min(end, query + shape.window);
  }
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

/// The visible keys of every query, [B*T], from the workspace.
cpu::KeyRange* visible_keys(const ExecContext& context, const AttentionShape& shape,
                            const TensorView& document_starts) {
  const int64_t rows = shape.batch * shape.tokens;
  cpu::KeyRange* visible = static_cast<cpu::KeyRange*>(
      context.workspace.allocate(static_cast<size_t>(rows) * sizeof(cpu::KeyRange)));
  const int32_t* starts = document_starts.empty() ? nullptr : document_starts.data<int32_t>();
  for (int64_t row = rows, end = 0; row-- > 0;) {
    const int64_t query = row % shape.tokens;
    const bool last_of_document =
        query + 1 == shape.tokens || (starts != nullptr && starts[row] != starts[row + 1]);
    if (last_of_document) end = query + 1;
    visible[row] = visible_keys(shape, query, starts == nullptr ? 0 : starts[row], end);
  }
  return visible;
}

/// Operations of `products` products of a direction, over the pairs of query and key that are visible.
double flops_of(const AttentionShape& shape, const cpu::KeyRange* visible, int64_t queries, double products) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < queries; ++i) pairs += visible[i].end - visible[i].begin;
  return 2 * products * static_cast<double>(pairs) * static_cast<double>(shape.heads * shape.head_size);
}

/// One piece of scratch for each thread.
struct ThreadScratch {
  char* data;
  int64_t bytes;
  ThreadScratch(const ExecContext& context, int64_t bytes_each) : bytes((bytes_each + 63) / 64 * 64) {
    data = static_cast<char*>(
        context.workspace.allocate(static_cast<size_t>(bytes * std::max(1, context.threads))));
  }
  void* of(int thread) const { return data + bytes * thread; }
};

}  // namespace

void attention_forward(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                       TensorView document_starts, const Dropout& dropout, TensorView out,
                       TensorView log_sum_exp) {
  check_operands(shape, qkv, document_starts, out, log_sum_exp, "attention_forward");
  const cpu::AttentionKernels& kernels = kernels_of(qkv.dtype());
  const cpu::AttentionGeometry geometry = geometry_of(shape);
  const cpu::MaskSource mask = mask_source(dropout);
  ArenaScope arena(context.workspace);
  const cpu::KeyRange* visible = visible_keys(context, shape, document_starts);
  ProfileScope scope(context, "attention", flops_of(shape, visible, shape.batch * shape.tokens, 2));
  const int64_t packed_bytes = kernels.packed_bytes(shape.tokens, shape.head_size);
  const size_t element = size_of(qkv.dtype());
  char* packed = static_cast<char*>(
      context.workspace.allocate(static_cast<size_t>(packed_bytes * shape.batch * shape.kv_heads)));
  const ThreadScratch scratch(context, kernels.forward_scratch_bytes(shape.head_size));
  const auto packed_head = [&](int64_t batch, int64_t kv_head) {
    return packed + (batch * shape.kv_heads + kv_head) * packed_bytes;
  };

  const int64_t key_blocks = (shape.tokens + kernels.key_block - 1) / kernels.key_block;
  parallel_tasks(context, shape.batch * shape.kv_heads * key_blocks, [&](int64_t task, int) {
    const int64_t begin = task % key_blocks * kernels.key_block, head = task / key_blocks % shape.kv_heads;
    const int64_t batch = task / key_blocks / shape.kv_heads;
    const void* keys =
        offset(row_of(qkv, batch * shape.tokens), (shape.heads + head) * shape.head_size, element);
    const void* values = offset(keys, shape.kv_heads * shape.head_size, element);
    kernels.pack(keys, values, geometry.columns, begin, std::min(shape.tokens, begin + kernels.key_block),
                 shape.tokens, shape.head_size, packed_head(batch, head));
  });

  const int64_t query_blocks = (shape.tokens + kernels.query_block - 1) / kernels.query_block;
  parallel_tasks(context, shape.batch * shape.heads * query_blocks, [&](int64_t task, int thread) {
    // Long blocks first, so that threads end together.
    const int64_t begin = (query_blocks - 1 - task % query_blocks) * kernels.query_block;
    const int64_t head = task / query_blocks % shape.heads, batch = task / query_blocks / shape.heads;
    kernels.forward(geometry, qkv.raw(), packed_head(batch, head / (shape.heads / shape.kv_heads)),
                    visible + batch * shape.tokens, mask, batch, head, begin,
                    std::min(shape.tokens, begin + kernels.query_block), out.raw(), log_sum_exp.data<float>(),
                    scratch.of(thread));
  });
}

void attention_backward(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                        TensorView document_starts, const Dropout& dropout, TensorView out,
                        TensorView log_sum_exp, TensorView dout, TensorView dqkv) {
  constexpr const char* kName = "attention_backward";
  check_operands(shape, qkv, document_starts, out, log_sum_exp, kName);
  expect(dout, qkv.dtype(), out.shape(), kName, "dout");
  expect(dqkv, qkv.dtype(), qkv.shape(), kName, "dqkv");
  const cpu::AttentionKernels& kernels = kernels_of(qkv.dtype());
  const cpu::AttentionGeometry geometry = geometry_of(shape);
  const cpu::MaskSource mask = mask_source(dropout);
  ArenaScope arena(context.workspace);
  const cpu::KeyRange* visible = visible_keys(context, shape, document_starts);
  ProfileScope scope(context, "attention", flops_of(shape, visible, shape.batch * shape.tokens, 5));
  const ThreadScratch scratch(context, kernels.backward_scratch_bytes(shape.tokens, shape.head_size));
  parallel_tasks(context, shape.batch * shape.kv_heads, [&](int64_t task, int thread) {
    const int64_t batch = task / shape.kv_heads;
    kernels.backward(geometry, qkv.raw(), visible + batch * shape.tokens, mask, batch, task % shape.kv_heads,
                     out.raw(), log_sum_exp.data<float>(), dout.raw(), dqkv.raw(), scratch.of(thread));
  });
}

void attention_with_cache(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                          int64_t past, TensorView key_cache, TensorView value_cache, TensorView out) {
  constexpr const char* kName = "attention_with_cache";
  check_shape(shape, kName);
  check(shape.batch == 1, "{}: handles one sequence, not a batch of {}", kName, shape.batch);
  check(shape.causal, "{}: a query that sees later keys cannot be computed before they are there", kName);
  const int64_t cache_columns = shape.kv_heads * shape.head_size;
  expect(qkv, qkv.dtype(), {shape.tokens, shape.packed_columns()}, kName, "qkv");
  expect(out, qkv.dtype(), {shape.tokens, shape.heads * shape.head_size}, kName, "out");
  check(!key_cache.empty() && key_cache.shape().rank() == 2, "{}: key_cache must be a matrix", kName);
  const int64_t slots = key_cache.shape()[0];
  expect(key_cache, qkv.dtype(), {slots, cache_columns}, kName, "key_cache");
  expect(value_cache, qkv.dtype(), {slots, cache_columns}, kName, "value_cache");
  check(past >= 0 && past + shape.tokens <= slots, "{}: {} tokens after {} do not fit a cache of {}", kName,
        shape.tokens, past, slots);
  const cpu::AttentionKernels& kernels = kernels_of(qkv.dtype());
  const cpu::AttentionGeometry geometry = geometry_of(shape);
  ArenaScope arena(context.workspace);
  cpu::KeyRange* visible = static_cast<cpu::KeyRange*>(
      context.workspace.allocate(static_cast<size_t>(shape.tokens) * sizeof(cpu::KeyRange)));
  for (int64_t t = 0; t < shape.tokens; ++t) visible[t] = visible_keys(shape, past + t, 0, past + t + 1);
  ProfileScope scope(context, "attention", flops_of(shape, visible, shape.tokens, 2));
  const size_t element = size_of(qkv.dtype());
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const void* keys = offset(row_of(qkv, t), shape.heads * shape.head_size, element);
    const size_t bytes = static_cast<size_t>(cache_columns) * element;
    std::memcpy(row_of(key_cache, past + t), keys, bytes);
    std::memcpy(row_of(value_cache, past + t), offset(keys, cache_columns, element), bytes);
  }
  const ThreadScratch scratch(context, kernels.cache_scratch_bytes(shape.head_size));
  const int64_t rows = shape.tokens * (shape.heads / shape.kv_heads);  // queries of a key/value head
  const int64_t blocks = (rows + kernels.query_block - 1) / kernels.query_block;
  parallel_tasks(context, shape.kv_heads * blocks, [&](int64_t task, int thread) {
    const int64_t first = task % blocks * kernels.query_block;
    kernels.cached(geometry, qkv.raw(), past, visible, key_cache.raw(), value_cache.raw(), task / blocks,
                   first, std::min(rows, first + kernels.query_block), out.raw(), scratch.of(thread));
  });
}

}  // namespace megalith
