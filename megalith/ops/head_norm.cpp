#include "megalith/ops/head_norm.h"

#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"
#include "megalith/ops/row_sums.h"

namespace megalith {

namespace {

void check_operands(const AttentionShape& shape, const TensorView& qkv, const TensorView& query_weight,
                    const TensorView& key_weight, const TensorView& before, const TensorView& rstd,
                    const char* operation) {
  check(qkv.shape().rank() == 2, "{}: qkv {} must be a matrix", operation, to_string(qkv.shape()));
  const int64_t rows = qkv.shape()[0], heads = shape.heads + shape.kv_heads;
  expect(qkv, qkv.dtype(), {rows, shape.packed_columns()}, operation, "qkv");
  expect(query_weight, qkv.dtype(), {shape.head_size}, operation, "query_weight");
  expect(key_weight, qkv.dtype(), {shape.head_size}, operation, "key_weight");
  if (before.empty() && rstd.empty()) return;
  expect(before, qkv.dtype(), {rows, heads * shape.head_size}, operation, "before");
  expect(rstd, DType::f32, {rows * heads}, operation, "rstd");
}

}  // namespace

void head_norm_forward(const ExecContext& context, const AttentionShape& shape, TensorView query_weight,
                       TensorView key_weight, float epsilon, TensorView qkv, TensorView before,
                       TensorView rstd) {
  check_operands(shape, qkv, query_weight, key_weight, before, rstd, "head_norm_forward");
  const cpu::TypedKernels& kernels = cpu::typed(qkv.dtype());
  const int64_t rows = qkv.shape()[0], heads = shape.heads + shape.kv_heads, size = shape.head_size;
  const size_t element = size_of(qkv.dtype());
  ProfileScope scope(context, "norm");
  ArenaScope arena(context.workspace);
  const TensorView statistics = rstd.empty() ? context.workspace.allocate(DType::f32, {rows * heads}) : rstd;
  parallel_blocks(context, rows, rows_per_block(heads * size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      void* y = row_of(qkv, n);
      const void* x = y;
      if (!before.empty()) {
        std::memcpy(row_of(before, n), y, static_cast<size_t>(heads * size) * element);
        x = row_of(before, n);
      }
      float* row_rstd = statistics.data<float>() + n * heads;
      kernels.norm_forward(false, x, query_weight.raw(), nullptr, epsilon, y, nullptr, row_rstd, shape.heads,
                           size);
      kernels.norm_forward(false, offset(x, shape.heads * size, element), key_weight.raw(), nullptr, epsilon,
                           offset(y, shape.heads * size, element), nullptr, row_rstd + shape.heads,
                           shape.kv_heads, size);
    }
  });
}

void head_norm_backward(const ExecContext& context, const AttentionShape& shape, TensorView query_weight,
                        TensorView key_weight, TensorView before, TensorView rstd, TensorView dqkv,
                        TensorView d_query_weight, TensorView d_key_weight) {
  constexpr const char* kName = "head_norm_backward";
  check_operands(shape, dqkv, query_weight, key_weight, before, rstd, kName);
  expect(d_query_weight, DType::f32, {shape.head_size}, kName, "d_query_weight");
  expect(d_key_weight, DType::f32, {shape.head_size}, kName, "d_key_weight");
  const cpu::TypedKernels& kernels = cpu::typed(dqkv.dtype());
  const int64_t rows = dqkv.shape()[0], heads = shape.heads + shape.kv_heads, size = shape.head_size;
  const size_t element = size_of(dqkv.dtype()), bytes = static_cast<size_t>(heads * size) * element;
  ProfileScope scope(context, "norm");
  ArenaScope arena(context.workspace);
  RowSums sums(context, rows, 2 * size);
  // The kernel adds to dx, which stands where dy does.
  const TensorView dy = context.workspace.allocate(dqkv.dtype(), {rows, heads * size});
  parallel_blocks(context, rows, sums.rows_per_sum(), [&](int64_t begin, int64_t end) {
    float* partial = sums.start(begin);
    for (int64_t n = begin; n < end; ++n) {
      void* dx = row_of(dqkv, n);
      const void *gradient = row_of(dy, n), *x = row_of(before, n);
      std::memcpy(row_of(dy, n), dx, bytes);
      std::memset(dx, 0, bytes);
      const float* row_rstd = rstd.data<float>() + n * heads;
      kernels.norm_backward(false, gradient, x, query_weight.raw(), nullptr, row_rstd, dx, partial, nullptr,
                            shape.heads, size);
      const int64_t keys = shape.heads * size;
      kernels.norm_backward(false, offset(gradient, keys, element), offset(x, keys, element),
                            key_weight.raw(), nullptr, row_rstd + shape.heads, offset(dx, keys, element),
                            partial + size, nullptr, shape.kv_heads, size);
    }
  });
  sums.add_to(context, 0, d_query_weight.data<float>(), size);
  sums.add_to(context, size, d_key_weight.data<float>(), size);
}

}  // namespace megalith
