#include "megalith/ops/activation.h"

#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class ActivationTest : public OpTest {};

const std::vector<Activation> kActivations = {
    Activation::gelu_tanh, Activation::gelu_erf,   Activation::relu,     Activation::silu,
    Activation::swiglu,    Activation::geglu_tanh, Activation::geglu_erf};

}  // namespace

// The elementary functions are good to 4e-7 relative to the terms they enter, of which the result has few.
TEST_F(ActivationTest, EqualsTheOracle) {
  for (const DType dtype : training_types()) {
    for (const Activation activation : kActivations) {
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {5, 64}, {9, 5001}}) {
        const int64_t width = is_gated(activation) ? 2 * columns : columns;
        const Tensor x = random_tensor(dtype, {rows, width}, 3, 2.5),
                     dy = random_tensor(dtype, {rows, columns}, 4);
        const auto results = on_any_threads([&] {
          std::vector<Tensor> out;
          out.emplace_back(dtype, Shape{rows, columns});
          out.emplace_back(dtype, Shape{rows, width});
          out.push_back(copy_of(x));
          activation_forward(context, activation, x, out[0]);
          activation_backward(context, activation, x, dy, out[1]);
          out.push_back(copy_of(dy));
          activation_backward(context, activation, out[2], out[3], out[2], out[3]);  // in place
          return out;
        });
        const auto kind = static_cast<reference::Activation>(activation);
        const int n = static_cast<int>(rows), f = static_cast<int>(columns);
        const double scale = 1 + largest(doubles(x)) * largest(doubles(x));
        const std::string what = "activation " + std::to_string(static_cast<int>(activation));
        expect_close(results[0], reference::activation(kind, doubles(x), n, f), 1e-6 * scale, what);
        expect_close(results[1], reference::activation_backward(kind, doubles(dy), doubles(x), n, f),
                     1e-6 * scale * largest(doubles(dy)), what + " backward");
        EXPECT_TRUE(same_bits(results[1], results[2])) << what << " backward in place";
        EXPECT_TRUE(same_bits(results[0], results[3])) << what << " output of backward";
      }
    }
  }
}

// Far from zero gelu is x or 0, and nothing overflows on the way.
TEST_F(ActivationTest, SaturatesWithoutOverflow) {
  const std::vector<double> sizes = {20, 100, 1e4, 1e15};
  for (const DType dtype : training_types()) {
    const int64_t count = 2 * static_cast<int64_t>(sizes.size()) - (dtype == DType::f16 ? 2 : 0);
    Tensor x(dtype, {count}), y(dtype, {count}), dx(dtype, {count}), dy(dtype, {count});
    for (int64_t i = 0; i < count; ++i) {
      const double size = sizes[static_cast<size_t>(i / 2)];
      set(x, i, i % 2 == 0 ? size : -size), set(dy, i, 1);
    }
    for (const Activation activation :
         {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::silu}) {
      activation_forward(context, activation, x, y);
      activation_backward(context, activation, x, dy, dx);
      for (int64_t i = 0; i < count; ++i) {
        const double at = get(x, i);
        EXPECT_NEAR(get(y, i), i % 2 == 0 ? at : 0, 1e-7 * std::abs(at)) << at;
        EXPECT_NEAR(get(dx, i), i % 2 == 0 ? 1 : 0, 1e-7) << at;
      }
    }
  }
}

// Relative accuracy over the whole range of the exponential inside: silu(x) / x = 1 / (1 + e^-x).
TEST_F(ActivationTest, LogisticIsAccurateOverItsRange) {
  const int64_t count = 20001;
  Tensor x(DType::f32, {count}), y(DType::f32, {count});
  for (int64_t i = 0; i < count; ++i) set(x, i, -86 + 172.0 * static_cast<double>(i) / (count - 1) + 1e-3);
  activation_forward(context, Activation::silu, x, y);
  for (int64_t i = 0; i < count; ++i) {
    const double at = get(x, i), expected = at / (1 + std::exp(-at));
    ASSERT_NEAR(get(y, i) / expected, 1, 6e-7) << at;
  }
  for (int64_t i = 0; i < count; ++i) set(x, i, -5 + 10.0 * static_cast<double>(i) / (count - 1) + 1e-4);
  activation_forward(context, Activation::gelu_erf, x, y);
  for (int64_t i = 0; i < count; ++i) {
    const double at = get(x, i), expected = at * 0.5 * std::erfc(-at * std::sqrt(0.5));
    ASSERT_NEAR(get(y, i) / expected, 1, 3e-6) << at;
  }
}

}  // namespace megalith::test
