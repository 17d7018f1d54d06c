#include "megalith/ops/rope.h"

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

void rope(const ExecContext& context, const AttentionShape& shape, RopeStyle style, TensorView positions,
          const RopeAngles& angles, bool backward, TensorView qkv) {
  check(qkv.shape().rank() == 2 && qkv.columns() == shape.packed_columns(),
        "rope: qkv {} does not have the {} columns of its heads", to_string(qkv.shape()),
        shape.packed_columns());
  const int64_t rows = qkv.shape()[0], pairs = angles.inverse_frequency.elements();
  expect(positions, DType::i32, {rows}, "rope", "positions");
  expect(angles.inverse_frequency, DType::f32, {pairs}, "rope", "inverse_frequency");
  check(2 * pairs <= shape.head_size, "rope: {} frequencies need heads of {} columns, which have {}", pairs,
        2 * pairs, shape.head_size);
  const cpu::TypedKernels& kernels = cpu::typed(qkv.dtype());
  ProfileScope scope(context, "rope");
  ArenaScope arena(context.workspace);
  float* cosine = context.workspace.allocate(DType::f32, {rows, pairs}).data<float>();
  float* sine = context.workspace.allocate(DType::f32, {rows, pairs}).data<float>();
  const int32_t* position = positions.data<int32_t>();
  const float* frequency = angles.inverse_frequency.data<float>();
  parallel_blocks(context, rows, rows_per_block(qkv.columns()), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float *c = cosine + n * pairs, *s = sine + n * pairs;
      cpu::kernels().element.angles(backward ? -static_cast<double>(position[n]) : position[n], frequency, c,
                                    s, pairs);
      if (angles.magnitude != 1) {
        for (int64_t i = 0; i < pairs; ++i) c[i] *= angles.magnitude, s[i] *= angles.magnitude;
      }
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        kernels.rotate(offset(row_of(qkv, n), head * shape.head_size, size_of(qkv.dtype())), c, s, pairs,
                       style == RopeStyle::interleaved);
      }
    }
  });
}

}  // namespace megalith
