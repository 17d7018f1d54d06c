#include "megalith/ops/activation.h"

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

/// Shape of the input for an output of [N,F].
Shape input_shape(Activation activation, const TensorView& y) {
  Shape shape = y.shape();
  check(shape.rank() >= 1, "activation: needs at least one dimension");
  if (is_gated(activation)) shape.set(shape.rank() - 1, 2 * shape.back());
  return shape;
}

}  // namespace

void activation_forward(const ExecContext& context, Activation activation, TensorView x, TensorView y) {
  expect(x, y.dtype(), input_shape(activation, y), "activation_forward", "x");
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "activation");
  const int64_t columns = y.columns();
  parallel_blocks(context, y.rows(), rows_per_block(columns), [&](int64_t begin, int64_t end) {
    kernels.activation_forward(static_cast<int>(activation), row_of(x, begin), row_of(y, begin), end - begin,
                               columns);
  });
}

void activation_backward(const ExecContext& context, Activation activation, TensorView x, TensorView dy,
                         TensorView dx, TensorView y) {
  expect(x, dy.dtype(), input_shape(activation, dy), "activation_backward", "x");
  expect(dx, dy.dtype(), x.shape(), "activation_backward", "dx");
  if (!y.empty()) expect(y, dy.dtype(), dy.shape(), "activation_backward", "y");
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "activation");
  const int64_t columns = dy.columns();
  parallel_blocks(context, dy.rows(), rows_per_block(columns), [&](int64_t begin, int64_t end) {
    kernels.activation_backward(static_cast<int>(activation), row_of(x, begin), row_of(dy, begin),
                                row_of(dx, begin), y.empty() ? nullptr : row_of(y, begin), end - begin,
                                columns);
  });
}

}  // namespace megalith
