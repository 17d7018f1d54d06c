// The oracle's gradients against complex-step derivatives of its own forward pass: no cancellation, so they
// agree to rounding.
#include <gtest/gtest.h>

#include <random>

#include "megalith/reference/model.h"
#include "megalith/reference/optimizers.h"

namespace megalith::reference {
namespace {

using Complex = std::complex<double>;

Values<double> random_values(size_t size, double scale, double center, std::mt19937& generator) {
  std::normal_distribution<double> normal(center, scale);
  Values<double> values(size);
  for (double& value : values) value = normal(generator);
  return values;
}

ParameterMap<double> random_parameters(const ModelShape& s, bool biases, int positions,
                                       std::mt19937& generator) {
  ParameterMap<double> p;
  const auto matrix = [&](const std::string& name, int rows, int columns) {
    p[name + ".weight"] = random_values(static_cast<size_t>(rows) * columns, 0.3, 0, generator);
    if (biases) p[name + ".bias"] = random_values(static_cast<size_t>(rows), 0.2, 0, generator);
  };
  const auto norm_parameters = [&](const std::string& name) {
    p[name + ".weight"] = random_values(static_cast<size_t>(s.hidden), 0.1, 1, generator);
    if (biases) p[name + ".bias"] = random_values(static_cast<size_t>(s.hidden), 0.1, 0, generator);
  };
  p["embedding.token.weight"] =
      random_values(static_cast<size_t>(s.vocabulary) * s.hidden, 0.5, 0, generator);
  if (s.learned_positions) {
    p["embedding.position.weight"] =
        random_values(static_cast<size_t>(positions) * s.hidden, 0.5, 0, generator);
  }
  for (int l = 0; l < s.layers; ++l) {
    const std::string name = "layers." + std::to_string(l) + ".";
    norm_parameters(name + "attention_norm");
    norm_parameters(name + "feed_forward_norm");
    matrix(name + "attention.query_key_value", (s.heads + 2 * s.kv_heads) * s.head_size, s.hidden);
    matrix(name + "attention.output", s.hidden, s.heads * s.head_size);
    matrix(name + "feed_forward.up", is_gated(s.activation) ? 2 * s.inner : s.inner, s.hidden);
    matrix(name + "feed_forward.down", s.hidden, s.inner);
  }
  norm_parameters("final_norm");
  if (!s.tied)
    p["head.weight"] = random_values(static_cast<size_t>(s.vocabulary) * s.hidden, 0.3, 0, generator);
  return p;
}

void check_model(const ModelShape& shape, bool biases) {
  std::mt19937 generator(7);
  const ParameterMap<double> parameters = random_parameters(shape, biases, 6, generator);
  Tokens tokens;
  tokens.batch = 2;
  tokens.length = 5;
  for (int i = 0; i < 10; ++i) {
    tokens.ids.push_back(static_cast<int>(generator() % static_cast<unsigned>(shape.vocabulary)));
    tokens.targets.push_back(
        i == 3 ? -1 : static_cast<int>(generator() % static_cast<unsigned>(shape.vocabulary)));
    tokens.positions.push_back(i % 5);
    tokens.weights.push_back(0.1 * (1 + i % 3));
    tokens.starts.push_back(i >= 7 ? 2 : 0);
  }
  ParameterMap<double> gradients;
  Model<double>(shape, parameters).loss(tokens, &gradients, nullptr);
  constexpr double kStep = 1e-30;
  for (const auto& [name, values] : parameters) {
    for (int probe = 0; probe < 3; ++probe) {
      const size_t at = generator() % values.size();
      ParameterMap<Complex> complex_parameters;
      for (const auto& [other, other_values] : parameters) {
        complex_parameters[other].assign(other_values.begin(), other_values.end());
      }
      complex_parameters[name][at] += Complex(0, kStep);
      const Complex loss = Model<Complex>(shape, complex_parameters).loss(tokens, nullptr, nullptr);
      // Rounding of a chain of a few hundred operations: 1e-12 of the gradient's scale.
      EXPECT_NEAR(loss.imag() / kStep, gradients[name][at], 1e-12 * (1 + std::abs(gradients[name][at])))
          << name << "[" << at << "]";
    }
  }
}

TEST(ReferenceModel, GradientsOfTheGpt2FormAreComplexStepDerivatives) {
  ModelShape shape;
  shape.vocabulary = 11;
  shape.layers = 2;
  shape.hidden = 8;
  shape.heads = shape.kv_heads = 2;
  shape.head_size = 4;
  shape.inner = 12;
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::silu}) {
    shape.activation = activation;
    check_model(shape, true);
  }
}

TEST(ReferenceModel, GradientsOfTheLlamaFormAreComplexStepDerivatives) {
  ModelShape shape;
  shape.vocabulary = 9;
  shape.layers = 2;
  shape.hidden = 12;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_size = 6;
  shape.inner = 10;
  shape.learned_positions = false;
  shape.centered_norm = false;
  shape.tied = false;
  for (const Activation activation : {Activation::swiglu, Activation::geglu_tanh, Activation::geglu_erf}) {
    shape.activation = activation;
    check_model(shape, false);
  }
}

TEST(ReferenceAttention, DropoutFactorsEnterTheGradient) {
  std::mt19937 generator(3);
  const AttentionShape shape{1, 4, 2, 1, 3, 0.7};
  const Values<double> qkv = random_values(4 * (2 + 2) * 3, 1, 0, generator);
  const Values<double> dout = random_values(4 * 2 * 3, 1, 0, generator);
  AttentionMask mask;
  for (int i = 0; i < 2 * 4 * 4; ++i) mask.keep.push_back(generator() % 3 == 0 ? 0.0 : 1.5);
  Values<double> probabilities;
  attention(qkv, shape, mask, probabilities);
  const Values<double> gradient = attention_backward(dout, qkv, shape, mask, probabilities);
  constexpr double kStep = 1e-30;
  for (size_t at = 0; at < qkv.size(); ++at) {
    Values<Complex> perturbed(qkv.begin(), qkv.end());
    perturbed[at] += Complex(0, kStep);
    Values<Complex> ignored;
    const Values<Complex> out = attention(perturbed, shape, mask, ignored);
    double derivative = 0;
    for (size_t i = 0; i < out.size(); ++i) derivative += out[i].imag() / kStep * dout[i];
    EXPECT_NEAR(derivative, gradient[at], 1e-12);
  }
}

TEST(ReferenceOptimizers, FirstAdamWStepIsTheSignOfTheGradientPlusDecay) {
  // With m = (1-b1) g and v = (1-b2) g^2, bias correction gives m/c1 = g and sqrt(v/c2) = |g|.
  Values<double> w{1.0, -2.0}, m{0, 0}, v{0, 0};
  adamw(w, m, v, {0.5, -3.0}, {0.1, 0.9, 0.99, 0.0, 0.01}, 1);
  EXPECT_NEAR(w[0], 1.0 - 0.1 * (1 + 0.01 * 1.0), 1e-15);
  EXPECT_NEAR(w[1], -2.0 - 0.1 * (-1 + 0.01 * -2.0), 1e-15);
}

TEST(ReferenceOptimizers, LambScalesTheUpdateToTheWeightNorm) {
  // The update's length is lr |w| whatever the gradient's.
  Values<double> w{3.0, 4.0}, m{0, 0}, v{0, 0};
  const Values<double> before = w;
  lamb(w, m, v, {1e-3, 2e-3}, {0.1, 0.9, 0.99, 0.0, 0.0}, 1);
  const double length = std::hypot(w[0] - before[0], w[1] - before[1]);
  EXPECT_NEAR(length, 0.1 * 5.0, 1e-12);
}

}  // namespace
}  // namespace megalith::reference
