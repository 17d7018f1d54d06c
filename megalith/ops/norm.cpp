#include "megalith/ops/norm.h"

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"
#include "megalith/ops/row_sums.h"

namespace megalith {

namespace {

/// Checks what both directions share and returns the number of rows.
int64_t check_statistics(const TensorView& x, NormKind kind, const TensorView& mean, const TensorView& rstd,
                         const char* operation) {
  check(x.shape().rank() >= 1 && x.columns() > 0, "{}: x {} has no columns", operation, to_string(x.shape()));
  const int64_t rows = x.rows();
  expect(rstd, DType::f32, {rows}, operation, "rstd");
  if (kind == NormKind::layer || !mean.empty()) expect(mean, DType::f32, {rows}, operation, "mean");
  return rows;
}

}  // namespace

void norm_forward(const ExecContext& context, NormKind kind, TensorView x, TensorView weight, TensorView bias,
                  float epsilon, TensorView y, TensorView mean, TensorView rstd) {
  const int64_t rows = check_statistics(x, kind, mean, rstd, "norm_forward"), columns = x.columns();
  expect(weight, x.dtype(), {columns}, "norm_forward", "weight");
  if (!bias.empty()) expect(bias, x.dtype(), {columns}, "norm_forward", "bias");
  expect(y, x.dtype(), x.shape(), "norm_forward", "y");
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "norm");
  parallel_blocks(context, rows, rows_per_block(columns), [&](int64_t begin, int64_t end) {
    kernels.norm_forward(kind == NormKind::layer, row_of(x, begin), weight.raw(), bias.raw(), epsilon,
                         row_of(y, begin), mean.empty() ? nullptr : mean.data<float>() + begin,
                         rstd.data<float>() + begin, end - begin, columns);
  });
}

void norm_backward(const ExecContext& context, NormKind kind, TensorView dy, TensorView x, TensorView weight,
                   TensorView mean, TensorView rstd, TensorView dx, TensorView dweight, TensorView dbias) {
  const int64_t rows = check_statistics(x, kind, mean, rstd, "norm_backward"), columns = x.columns();
  expect(dy, x.dtype(), x.shape(), "norm_backward", "dy");
  expect(dx, x.dtype(), x.shape(), "norm_backward", "dx");
  expect(weight, x.dtype(), {columns}, "norm_backward", "weight");
  expect(dweight, DType::f32, {columns}, "norm_backward", "dweight");
  if (!dbias.empty()) expect(dbias, DType::f32, {columns}, "norm_backward", "dbias");
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "norm");
  ArenaScope arena(context.workspace);
  RowSums sums(context, rows, 2 * columns);
  parallel_blocks(context, rows, sums.rows_per_sum(), [&](int64_t begin, int64_t end) {
    float* partial = sums.start(begin);
    kernels.norm_backward(kind == NormKind::layer, row_of(dy, begin), row_of(x, begin), weight.raw(),
                          mean.empty() ? nullptr : mean.data<float>() + begin, rstd.data<float>() + begin,
                          row_of(dx, begin), partial, dbias.empty() ? nullptr : partial + columns,
                          end - begin, columns);
  });
  sums.add_to(context, 0, dweight.data<float>(), columns);
  if (!dbias.empty()) sums.add_to(context, columns, dbias.data<float>(), columns);
}

}  // namespace megalith
