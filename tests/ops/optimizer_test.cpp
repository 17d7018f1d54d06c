#include "megalith/ops/optimizer.h"

#include "megalith/reference/optimizers.h"
#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class OptimizerTest : public OpTest {};

const reference::AdamSettings kSettings{
    .learning_rate = 3e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};

AdamWArguments arguments_of(const reference::AdamSettings& s, int step, float gradient_scale) {
  AdamWArguments a;
  a.learning_rate = static_cast<float>(s.learning_rate);
  a.beta1 = static_cast<float>(s.beta1);
  a.beta2 = static_cast<float>(s.beta2);
  a.epsilon = static_cast<float>(s.epsilon);
  a.weight_decay = static_cast<float>(s.weight_decay);
  a.bias_correction1 = static_cast<float>(1 - std::pow(s.beta1, step));
  a.bias_correction2 = static_cast<float>(1 - std::pow(s.beta2, step));
  a.gradient_scale = gradient_scale;
  return a;
}

void expect_rounded(const TensorView& copy, const TensorView& weight) {
  for (int64_t i = 0; i < weight.elements(); ++i) {
    const float w = weight.data<float>()[i];
    ASSERT_EQ(get(copy, i),
              copy.dtype() == DType::bf16 ? static_cast<float>(BFloat16(w)) : static_cast<float>(Float16(w)));
  }
}

}  // namespace

// Each step rounds every quantity a few times; the direction is of size one.
TEST_F(OptimizerTest, AdamWAndLambFollowTheOracle) {
  for (const int64_t count : {1, 37, 70001, 140000, 1048613}) {
    for (const bool lamb : {false, true}) {
      for (const DType copy_type : {DType::bf16, DType::f16}) {
        const auto results = on_any_threads([&] {
          std::vector<Tensor> out;
          out.push_back(random_tensor(DType::f32, {count}, 1));
          for (int i = 0; i < 2; ++i) out.emplace_back(DType::f32, Shape{count});
          out.emplace_back(copy_type, Shape{count});
          for (int step = 1; step <= 3; ++step) {
            const Tensor gradient = random_tensor(DType::f32, {count}, 10 + static_cast<uint64_t>(step), 8);
            (lamb ? lamb_update : adamw_update)(context, arguments_of(kSettings, step, 0.25f), out[0], out[1],
                                                out[2], gradient, out[3]);
          }
          return out;
        });
        Doubles w = doubles(random_tensor(DType::f32, {count}, 1)), m(w.size()), v(w.size());
        for (int step = 1; step <= 3; ++step) {
          Doubles g = doubles(random_tensor(DType::f32, {count}, 10 + static_cast<uint64_t>(step), 8));
          for (double& value : g) value *= 0.25;
          (lamb ? reference::lamb<double> : reference::adamw<double>)(w, m, v, g, kSettings, step);
        }
        expect_close(results[0], w, 40 * kFloatError * largest(w), "weights");
        expect_close(results[1], m, 40 * kFloatError * largest(m), "m");
        expect_close(results[2], v, 40 * kFloatError * largest(v), "v");
        expect_rounded(results[3], results[0]);
      }
    }
  }
}

TEST_F(OptimizerTest, SgdFollowsTheOracle) {
  for (const int64_t count : {1, 37, 140000}) {
    for (const double momentum : {0.0, 0.9}) {
      const auto results = on_any_threads([&] {
        std::vector<Tensor> out;
        out.push_back(random_tensor(DType::f32, {count}, 1));
        out.emplace_back(DType::f32, Shape{count});
        out.emplace_back(DType::bf16, Shape{count});
        for (uint64_t step = 1; step <= 3; ++step) {
          sgd_update(context,
                     {.learning_rate = 0.1f,
                      .momentum = static_cast<float>(momentum),
                      .weight_decay = 0.01f,
                      .gradient_scale = 0.5f},
                     out[0], momentum > 0 ? out[1].view() : TensorView(),
                     random_tensor(DType::f32, {count}, 10 + step, 2), out[2]);
        }
        return out;
      });
      Doubles w = doubles(random_tensor(DType::f32, {count}, 1)), u(w.size());
      for (uint64_t step = 1; step <= 3; ++step) {
        Doubles g = doubles(random_tensor(DType::f32, {count}, 10 + step, 2));
        for (double& value : g) value *= 0.5;
        reference::sgd(w, u, g, 0.1, momentum, 0.01);
      }
      expect_close(results[0], w, 20 * kFloatError * largest(w), "weights");
      expect_rounded(results[2], results[0]);
    }
  }
}

TEST_F(OptimizerTest, LambOfZeroWeightsUsesARatioOfOne) {
  Tensor w(DType::f32, {4}), m(DType::f32, {4}), v(DType::f32, {4});
  const Tensor gradient = random_tensor(DType::f32, {4}, 1);
  lamb_update(context, arguments_of({.learning_rate = 0.5}, 1, 1), w, m, v, gradient, {});
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(get(w, i), get(gradient, i) > 0 ? -0.5 : 0.5, 1e-5);
}

}  // namespace megalith::test
