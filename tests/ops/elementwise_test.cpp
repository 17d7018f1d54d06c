#include "megalith/ops/elementwise.h"

#include <cmath>
#include <limits>

#include "megalith/ops/exact_sum.h"
#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class ElementwiseTest : public OpTest {};

}  // namespace

// Over all magnitudes: the polynomial near zero, the exponential's range, and where the result is the cap.
TEST_F(ElementwiseTest, SoftCapIsAHyperbolicTangent) {
  for (const DType dtype : training_types()) {
    const int64_t count = 5001;
    Tensor x(dtype, {count});
    for (int64_t i = 0; i < count; ++i) {
      const double size = std::pow(2.0, static_cast<double>(i % 60) / 2 - 14);
      set(x, i, (i % 2 == 0 ? 1 : -1) * size * (1 + static_cast<double>(i) / count));
    }
    for (const auto& [factor, cap] : {std::pair<float, float>{1, 1}, {0.5f, 30}}) {
      const Tensor y = copy_of(x);
      soft_cap(context, y, factor, cap);
      const Doubles expected = reference::soft_cap(doubles(x), factor, cap);
      Doubles bound = magnitudes(expected);
      for (double& value : bound) value *= 5e-7;
      expect_close(y, expected, bound, "soft cap");
    }
  }
}

// Every pattern of the 16-bit types widens exactly, and comes back as itself.
TEST_F(ElementwiseTest, ConversionsOfEveryHalfPattern) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor all(dtype, {65536}), wide(DType::f32, {65536}), back(dtype, {65536});
    for (int i = 0; i < 65536; ++i) static_cast<uint16_t*>(all.view().raw())[i] = static_cast<uint16_t>(i);
    convert(context, all, wide);
    convert(context, wide, back);
    for (int i = 0; i < 65536; ++i) {
      const double expected = get(all, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(get(wide, i)) && std::isnan(get(back, i))) << i;
      } else {
        ASSERT_EQ(get(wide, i), expected) << i;
        ASSERT_EQ(static_cast<uint16_t*>(back.view().raw())[i], i) << i;
      }
    }
  }
}

TEST_F(ElementwiseTest, RoundsToNearestEvenAsTheScalarTypes) {
  const int64_t count = 1 << 18;
  Tensor x(DType::f32, {count});
  const RandomStream stream(5, RandomUse::initialization, 0);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word = stream.word(static_cast<uint64_t>(i));
    if (i % 3 == 0) word &= 0xffff8000u;                        // ties of bf16
    if (i % 3 == 1) word = (word & 0x87fff000u) | 0x38000000u;  // ties of fp16
    if (i % 6 == 2) word = (word & 0x81ffffffu) | 0x32000000u;  // subnormal numbers of fp16
    std::memcpy(&x.data<float>()[i], &word, 4);
  }
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor y(dtype, {count});
    convert(context, x, y);
    for (int64_t i = 0; i < count; ++i) {
      const float value = x.data<float>()[i];
      const uint16_t expected = dtype == DType::bf16 ? BFloat16(value).bits : Float16(value).bits;
      const uint16_t actual = static_cast<uint16_t*>(y.view().raw())[i];
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(get(y, i)));
      } else {
        ASSERT_EQ(actual, expected) << value;
      }
    }
  }
}

TEST_F(ElementwiseTest, BetweenHalfTypesAndScaling) {
  const Tensor x = random_tensor(DType::bf16, {5003}, 1);
  Tensor y(DType::f16, {5003});
  convert(context, x, y);
  expect_close(y, doubles(x), 0, "bf16 to fp16");
  for (const DType dtype : training_types()) {
    const Tensor z = random_tensor(dtype, {70001}, 2);
    const auto scaled = on_any_threads([&] {
      std::vector<Tensor> out;
      out.push_back(copy_of(z));
      scale(context, out[0], 0.3f);
      return out;
    });
    Doubles expected = doubles(z);
    for (double& value : expected) value *= 0.3f;
    expect_close(scaled[0], expected, kFloatError, "scale");
    fill_zero(context, scaled[0]);
    EXPECT_EQ(largest(doubles(scaled[0])), 0);
  }
}

TEST_F(ElementwiseTest, ExactSumDoesNotDependOnThreadsOrOnHowItIsCut) {
  for (const int64_t count : {1, 1000, 600000}) {
    Tensor x = random_tensor(DType::f32, {count}, 3);
    // Powers of two from the smallest to the greatest squares; most additions to a running double would
    // round.
    for (int64_t i = 0; i < count; i += 7)
      x.data<float>()[i] *= std::ldexp(1.0f, static_cast<int>(i % 80) - 40);
    double expected = 0;
    for (const double value : doubles(x)) expected += value * value;
    context.threads = 1;
    ExactSum one;
    one.add_squares(context, x);
    EXPECT_NEAR(one.value() / expected, 1, 1e-13 * std::sqrt(static_cast<double>(count)));
    context.threads = 2;
    for (const int64_t cut : {int64_t{16}, count / 3 / 16 * 16, count}) {
      if (cut > count) continue;
      ExactSum first, second;
      second.add_squares(context, x.view().slice(cut, count));
      first.add_squares(context, x.view().slice(0, cut));
      second.add(first);
      EXPECT_EQ(one.value(), second.value());
    }
  }
}

TEST_F(ElementwiseTest, ExactSumReachesOverTheWholeRangeAndKnowsWhatIsNotFinite) {
  Tensor x(DType::f32, {3});
  for (const float value :
       {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 0.0f}) {
    for (int64_t i = 0; i < 3; ++i) x.data<float>()[i] = value;
    ExactSum sum;
    sum.add_squares(context, x);
    EXPECT_EQ(sum.value(), 3.0 * static_cast<double>(value) * static_cast<double>(value));
  }
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    x.data<float>()[1] = value;
    ExactSum sum;
    sum.add_squares(context, x);
    EXPECT_TRUE(std::isnan(sum.value()));
  }
}

TEST_F(ElementwiseTest, AddAdds) {
  const Tensor x = random_tensor(DType::f32, {70001}, 3);
  Tensor sum = random_tensor(DType::f32, {70001}, 4);
  Doubles expected = doubles(sum);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += get(x, static_cast<int64_t>(i));
  add(context, x, sum);
  expect_close(sum, expected, kFloatError, "add");
}

TEST_F(ElementwiseTest, FindsTheFirstNumberThatIsNotFinite) {
  Tensor x = random_tensor(DType::f32, {600000}, 4);
  for (const int threads : {1, 2}) {
    context.threads = threads;
    EXPECT_EQ(first_not_finite(context, x), -1);
    float* data = x.data<float>();
    const float saved[2] = {data[599999], data[300007]};
    data[599999] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(first_not_finite(context, x), 599999);
    data[300007] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_not_finite(context, x), 300007);
    data[599999] = saved[0];
    data[300007] = saved[1];
  }
}

}  // namespace megalith::test
