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
  return {shape.tokens, shape.heads, shape.kv_heads, shape.head_size, shape.packed_columns(), shape.scale};
}

/// Products of one direction; half of the square is masked.
double flops_of(const AttentionShape& shape, double products) {
  return products * static_cast<double>(shape.batch * shape.heads) * static_cast<double>(shape.tokens) *
         static_cast<double>(shape.tokens) * static_cast<double>(shape.head_size);
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
  ProfileScope scope(context, "attention", flops_of(shape, 2));
  ArenaScope arena(context.workspace);
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

  const int32_t* starts = document_starts.empty() ? nullptr : document_starts.data<int32_t>();
  const int64_t query_blocks = (shape.tokens + kernels.query_block - 1) / kernels.query_block;
  parallel_tasks(context, shape.batch * shape.heads * query_blocks, [&](int64_t task, int thread) {
    // Long blocks first, so that threads end together.
    const int64_t begin = (query_blocks - 1 - task % query_blocks) * kernels.query_block;
    const int64_t head = task / query_blocks % shape.heads, batch = task / query_blocks / shape.heads;
    kernels.forward(geometry, qkv.raw(), packed_head(batch, head / (shape.heads / shape.kv_heads)), starts,
                    mask, batch, head, begin, std::min(shape.tokens, begin + kernels.query_block), out.raw(),
                    log_sum_exp.data<float>(), scratch.of(thread));
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
  ProfileScope scope(context, "attention", flops_of(shape, 5));
  ArenaScope arena(context.workspace);
  const ThreadScratch scratch(context, kernels.backward_scratch_bytes(shape.tokens, shape.head_size));
  const int32_t* starts = document_starts.empty() ? nullptr : document_starts.data<int32_t>();
  parallel_tasks(context, shape.batch * shape.kv_heads, [&](int64_t task, int thread) {
    kernels.backward(geometry, qkv.raw(), starts, mask, task / shape.kv_heads, task % shape.kv_heads,
                     out.raw(), log_sum_exp.data<float>(), dout.raw(), dqkv.raw(), scratch.of(thread));
  });
}

void attention_with_cache(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                          int64_t past, TensorView key_cache, TensorView value_cache, TensorView out) {
  constexpr const char* kName = "attention_with_cache";
  check_shape(shape, kName);
  check(shape.batch == 1, "{}: handles one sequence, not a batch of {}", kName, shape.batch);
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
  ProfileScope scope(context, "attention",
                     4.0 * static_cast<double>(shape.tokens * shape.heads * shape.head_size) *
                         static_cast<double>(past + shape.tokens));
  const size_t element = size_of(qkv.dtype());
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const void* keys = offset(row_of(qkv, t), shape.heads * shape.head_size, element);
    const size_t bytes = static_cast<size_t>(cache_columns) * element;
    std::memcpy(row_of(key_cache, past + t), keys, bytes);
    std::memcpy(row_of(value_cache, past + t), offset(keys, cache_columns, element), bytes);
  }
  ArenaScope arena(context.workspace);
  const ThreadScratch scratch(context, kernels.cache_scratch_bytes(shape.head_size));
  const int64_t group = shape.heads / shape.kv_heads;
  check(group <= kernels.query_block, "{}: more than {} query heads share a key/value head", kName,
        kernels.query_block);
  const int64_t tokens_each = kernels.query_block / group;
  const int64_t blocks = (shape.tokens + tokens_each - 1) / tokens_each;
  parallel_tasks(context, shape.kv_heads * blocks, [&](int64_t task, int thread) {
    const int64_t first = task % blocks * tokens_each;
    kernels.cached(geometry, qkv.raw(), past, key_cache.raw(), value_cache.raw(), task / blocks, first,
                   std::min(shape.tokens, first + tokens_each), out.raw(), scratch.of(thread));
  });
}

}  // namespace megalith
