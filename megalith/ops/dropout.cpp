#include "megalith/ops/dropout.h"

#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/mask_source.h"
#include "megalith/ops/parallel.h"

namespace megalith {

void residual_add(const ExecContext& context, TensorView x, TensorView delta, const Dropout& dropout,
                  TensorView y) {
  expect(delta, x.dtype(), x.shape(), "residual_add", "delta");
  expect(y, x.dtype(), x.shape(), "residual_add", "y");
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  const cpu::MaskSource mask = mask_source(dropout);
  ProfileScope scope(context, "residual");
  parallel_blocks(context, x.rows(), rows_per_block(x.columns()), [&](int64_t begin, int64_t end) {
    kernels.residual_add(mask, row_of(x, begin), row_of(delta, begin), row_of(y, begin), begin, end - begin,
                         x.columns());
  });
}

void dropout_backward(const ExecContext& context, TensorView dy, const Dropout& dropout, TensorView dx) {
  expect(dx, dy.dtype(), dy.shape(), "dropout_backward", "dx");
  const cpu::TypedKernels& kernels = cpu::typed(dy.dtype());
  const cpu::MaskSource mask = mask_source(dropout);
  if (!mask.active && dx.raw() == dy.raw()) return;
  ProfileScope scope(context, "residual");
  parallel_blocks(context, dy.rows(), rows_per_block(dy.columns()), [&](int64_t begin, int64_t end) {
    if (mask.active) {
      kernels.masked_copy(mask, row_of(dy, begin), row_of(dx, begin), begin, end - begin, dy.columns());
    } else {
      std::memcpy(row_of(dx, begin), row_of(dy, begin),
                  static_cast<size_t>((end - begin) * dy.columns()) * size_of(dy.dtype()));
    }
  });
}

}  // namespace megalith
