#include "megalith/ops/matmul.h"

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/gemm.h"
#include "megalith/ops/row_sums.h"

namespace megalith {

namespace {

double flops_of(int64_t n, int64_t c, int64_t f) {
  return 2.0 * static_cast<double>(n) * static_cast<double>(c) * static_cast<double>(f);
}

void expect_matrix(const TensorView& x, const char* operation, const char* what) {
  check(!x.empty() && x.shape().rank() == 2, "{}: {} {} must be a matrix", operation, what,
        to_string(x.shape()));
}

}  // namespace

namespace {

/// Both forms of the forward product: `weight` is w as it lies in memory, or packed.
void forward(const ExecContext& context, const TensorView& x, int64_t f, const GemmOperand& weight,
             const TensorView& bias, const TensorView& y) {
  constexpr const char* kName = "linear_forward";
  const int64_t n = x.shape()[0], c = x.shape()[1];
  if (!bias.empty()) expect(bias, x.dtype(), {f}, kName, "bias");
  expect(y, y.dtype() == DType::f32 ? DType::f32 : x.dtype(), {n, f}, kName, "y");
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "matmul", flops_of(n, c, f));
  ArenaScope arena(context.workspace);
  const float* widened = nullptr;
  if (!bias.empty()) {
    float* floats = context.workspace.allocate(DType::f32, {f}).data<float>();
    kernels.to_float(bias.raw(), floats, f);
    widened = floats;
  }
  gemm(context, n, f, c, {x.raw(), x.dtype(), c}, weight, {y.raw(), y.dtype(), f, widened});
}

}  // namespace

void linear_forward(const ExecContext& context, TensorView x, TensorView w, TensorView bias, TensorView y) {
  expect_matrix(x, "linear_forward", "x");
  expect_matrix(w, "linear_forward", "w");
  const int64_t c = x.shape()[1], f = w.shape()[0];
  expect(w, x.dtype(), {f, c}, "linear_forward", "w");
  forward(context, x, f, {w.raw(), w.dtype(), c}, bias, y);
}

size_t packed_weight_bytes(DType dtype, int64_t outputs, int64_t inputs) {
  return packed_operand_bytes(dtype, outputs, inputs);
}

PackedWeight pack_weight(const ExecContext& context, TensorView w, TensorView data) {
  expect_matrix(w, "pack_weight", "w");
  const int64_t f = w.shape()[0], c = w.shape()[1];
  expect(data, DType::u8, {static_cast<int64_t>(packed_weight_bytes(w.dtype(), f, c))}, "pack_weight",
         "data");
  ProfileScope scope(context, "convert");
  pack_operand(context, f, c, {w.raw(), w.dtype(), c}, data.raw());
  return {data, w.dtype(), f, c};
}

void linear_forward(const ExecContext& context, TensorView x, const PackedWeight& w, TensorView bias,
                    TensorView y) {
  expect_matrix(x, "linear_forward", "x");
  expect(x, w.dtype, {x.shape()[0], w.inputs}, "linear_forward", "x");
  forward(context, x, w.outputs, {.data = w.data.raw(), .dtype = w.dtype, .packed = true}, bias, y);
}

void linear_backward_input(const ExecContext& context, TensorView dy, TensorView w, TensorView dx) {
  constexpr const char* kName = "linear_backward_input";
  expect_matrix(dy, kName, "dy");
  expect_matrix(w, kName, "w");
  const int64_t n = dy.shape()[0], f = dy.shape()[1], c = w.shape()[1];
  expect(w, dy.dtype(), {f, c}, kName, "w");
  expect(dx, dy.dtype(), {n, c}, kName, "dx");
  ProfileScope scope(context, "matmul", flops_of(n, c, f));
  gemm(context, n, c, f, {dy.raw(), dy.dtype(), f, true}, {w.raw(), w.dtype(), c, false},
       {dx.raw(), dx.dtype(), c, nullptr, false});
}

void linear_backward_weight(const ExecContext& context, TensorView dy, TensorView x, TensorView dw,
                            bool accumulate) {
  constexpr const char* kName = "linear_backward_weight";
  expect_matrix(dy, kName, "dy");
  expect_matrix(x, kName, "x");
  const int64_t n = dy.shape()[0], f = dy.shape()[1], c = x.shape()[1];
  expect(x, dy.dtype(), {n, c}, kName, "x");
  expect(dw, DType::f32, {f, c}, kName, "dw");
  ProfileScope scope(context, "matmul", flops_of(n, c, f));
  gemm(context, f, c, n, {dy.raw(), dy.dtype(), f, false}, {x.raw(), x.dtype(), c, false},
       {dw.raw(), dw.dtype(), c, nullptr, accumulate});
}

void bias_backward(const ExecContext& context, TensorView dy, TensorView dbias) {
  expect_matrix(dy, "bias_backward", "dy");
  const int64_t n = dy.shape()[0], f = dy.shape()[1];
  expect(dbias, DType::f32, {f}, "bias_backward", "dbias");
  const cpu::TypedKernels& kernels = cpu::typed(dy.dtype());
  ProfileScope scope(context, "bias");
  ArenaScope arena(context.workspace);
  RowSums sums(context, n, f);
  parallel_blocks(context, n, sums.rows_per_sum(), [&](int64_t begin, int64_t end) {
    kernels.column_sums(row_of(dy, begin), f, end - begin, f, sums.start(begin));
  });
  sums.add_to(context, 0, dbias.data<float>(), f);
}

}  // namespace megalith
