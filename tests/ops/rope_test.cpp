#include "megalith/ops/rope.h"

#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class RopeTest : public OpTest {};

}  // namespace

TEST_F(RopeTest, EqualsTheOracleAndBackwardUndoesForward) {
  for (const DType dtype : training_types()) {
    for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
      for (const auto& [size, rotated] : {std::pair<int64_t, int64_t>{2, 2}, {20, 20}, {33, 16}, {64, 64}}) {
        const AttentionShape shape{
            .batch = 1, .tokens = 9, .heads = 4, .kv_heads = 2, .head_size = size, .scale = 1};
        const std::vector<int> places = {0, 1, 2, 500, 4095, 131071, 1000003, 7, 7};
        Tensor frequency(DType::f32, {rotated / 2});
        std::vector<double> inverse;
        for (int64_t i = 0; i < rotated / 2; ++i) {
          set(frequency, i, std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotated)));
          inverse.push_back(get(frequency, i));
        }
        const Tensor qkv = random_tensor(dtype, {9, shape.packed_columns()}, 1), positions = integers(places);
        const auto results = on_any_threads([&] {
          std::vector<Tensor> out;
          out.push_back(copy_of(qkv));
          rope(context, shape, style, positions, {frequency, 1.25f}, false, out[0]);
          out.push_back(copy_of(out[0]));
          rope(context, shape, style, positions, {frequency, 1 / 1.25f}, true, out[1]);
          return out;
        });
        Doubles expected = doubles(qkv);
        reference::rope(expected, places, inverse, 1.25, style == RopeStyle::interleaved, 1,
                        static_cast<int>(shape.packed_columns()), 6, static_cast<int>(size));
        expect_close(results[0], expected, 6 * kFloatError * largest(expected), "rope");
        expect_close(results[1], doubles(qkv),
                     (6 * kFloatError + 2 * rounding_error(dtype)) * largest(expected), "rope undone");
      }
    }
  }
}

}  // namespace megalith::test
