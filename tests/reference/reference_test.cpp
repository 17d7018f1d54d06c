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

// What a model has besides the parameters that all have.
struct Extras {
  bool biases = false, positions = false, types = false, embedding_norm = false, final_norm = true,
       head_norms = false, masked_head = false, head_bias = false;
};

ParameterMap<double> random_parameters(const ModelShape& s, const Extras& extras, int positions,
                                       std::mt19937& generator) {
  ParameterMap<double> p;
  const auto table = [&](const std::string& name, int rows, int columns) {
    p[name + ".weight"] = random_values(static_cast<size_t>(rows) * columns, 0.3, 0, generator);
  };
  const auto matrix = [&](const std::string& name, int rows, int columns) {
    table(name, rows, columns);
    if (extras.biases) p[name + ".bias"] = random_values(static_cast<size_t>(rows), 0.2, 0, generator);
  };
  const auto norm_parameters = [&](const std::string& name) {
    p[name + ".weight"] = random_values(static_cast<size_t>(s.hidden), 0.1, 1, generator);
    if (extras.biases) p[name + ".bias"] = random_values(static_cast<size_t>(s.hidden), 0.1, 0, generator);
  };
  table("embedding.token", s.vocabulary, s.hidden);
  if (extras.positions) table("embedding.position", positions, s.hidden);
  if (extras.types) table("embedding.token_type", 2, s.hidden);
  if (extras.embedding_norm) norm_parameters("embedding.norm");
  for (int l = 0; l < s.layers; ++l) {
    const std::string name = "layers." + std::to_string(l) + ".";
    norm_parameters(name + "attention_norm");
    if (s.order != BranchOrder::parallel_shared_norm) norm_parameters(name + "feed_forward_norm");
    if (s.placement == NormPlacement::both) {
      norm_parameters(name + "attention_post_norm");
      norm_parameters(name + "feed_forward_post_norm");
    }
    matrix(name + "attention.query_key_value", (s.heads + 2 * s.kv_heads) * s.head_size, s.hidden);
    if (extras.head_norms) {
      const size_t size = static_cast<size_t>(s.head_size);
      p[name + "attention.query_norm.weight"] = random_values(size, 0.1, 1, generator);
      p[name + "attention.key_norm.weight"] = random_values(size, 0.1, 1, generator);
    }
    matrix(name + "attention.output", s.hidden, s.heads * s.head_size);
    matrix(name + "feed_forward.up", is_gated(s.activation) ? 2 * s.inner : s.inner, s.hidden);
    matrix(name + "feed_forward.down", s.hidden, s.inner);
  }
  if (extras.final_norm) norm_parameters("final_norm");
  if (extras.masked_head) {
    matrix("head.dense", s.hidden, s.hidden);
    norm_parameters("head.norm");
  }
  if (!s.tied) table("head", s.vocabulary, s.hidden);
  if (extras.head_bias) p["head.bias"] = random_values(static_cast<size_t>(s.vocabulary), 0.2, 0, generator);
  return p;
}

void check_model(ModelShape shape, const Extras& extras) {
  shape.rules.resize(static_cast<size_t>(shape.layers));
  std::mt19937 generator(7);
  const ParameterMap<double> parameters = random_parameters(shape, extras, 6, generator);
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
    if (extras.types) tokens.types.push_back(i % 2);
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

TEST(ReferenceModel, GradientsAreComplexStepDerivatives) {
  ModelShape gpt2;
  gpt2.vocabulary = 11;
  gpt2.layers = 2;
  gpt2.hidden = 8;
  gpt2.heads = gpt2.kv_heads = 2;
  gpt2.head_size = 4;
  gpt2.attention_scale = 0.5;
  gpt2.inner = 12;
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::silu}) {
    gpt2.activation = activation;
    check_model(gpt2, {.biases = true, .positions = true});
  }
  ModelShape llama = gpt2;
  llama.heads = 4;
  llama.centered_norm = false;
  llama.tied = false;
  llama.rules = {{0, {1, 0.3}}, {2, {0.5, 0.1}}};  // the second layer with a window
  for (const Activation activation : {Activation::swiglu, Activation::geglu_tanh, Activation::geglu_erf}) {
    llama.activation = activation;
    check_model(llama, {});
  }
  ModelShape gemma = llama;  // also Qwen 3's norms of heads
  gemma.placement = NormPlacement::both;
  gemma.rope_magnitude = 1.3;
  gemma.embedding_scale = 3;
  gemma.attention_softcap = 2;
  gemma.logit_softcap = 1.5;
  gemma.logit_scale = 0.7;
  gemma.tied = true;
  check_model(gemma, {.head_norms = true});
  ModelShape bert = gpt2;
  bert.placement = NormPlacement::post;
  bert.causal = false;
  bert.activation = Activation::gelu_erf;
  check_model(bert, {.biases = true,
                     .positions = true,
                     .types = true,
                     .embedding_norm = true,
                     .final_norm = false,
                     .masked_head = true,
                     .head_bias = true});
  ModelShape parallel = gpt2;
  parallel.alibi = true;
  for (const BranchOrder order : {BranchOrder::parallel, BranchOrder::parallel_shared_norm}) {
    parallel.order = order;
    check_model(parallel, {.biases = true});
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
