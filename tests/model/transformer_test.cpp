#include "megalith/model/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/model/tiny_model.h"

namespace megalith {
namespace {

using Case = NamedConfig;

std::vector<Case> cases() {
  std::vector<Case> all = tiny_families();
  all.insert(all.end(), {{"gpt2", tiny_config(ModelForm::gpt2)}, {"llama", tiny_config(ModelForm::llama)}});
  ModelConfig mixed = tiny_config(ModelForm::gpt2);
  mixed.activation = Activation::relu;
  mixed.tied_embeddings = false;
  mixed.norm = NormKind::rms;
  all.push_back({"relu, rms, untied", mixed});
  ModelConfig geglu = tiny_config(ModelForm::llama);
  geglu.activation = Activation::geglu_erf;
  geglu.tied_embeddings = true;
  geglu.bias = true;
  all.push_back({"geglu, biases, tied", geglu});
  return all;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

TEST(Transformer, Fp32LossAndGradientsAreTheOracles) {
  for (const Case& c : cases()) {
    for (const bool documents : {false, true}) {
      TinyModel tiny(c.config, DType::f32, 5);
      TinyBatch batch(2, 11, c.config.vocab_size, 9);
      batch.reset_types(c.config.token_types);
      if (documents) batch.reset_documents({0, 4, 5});
      const std::vector<float> losses = losses_of(tiny, batch.tokens());
      const auto parameters = tiny.parameter_map<double>();
      reference::ParameterMap<double> gradients;
      const double expected = reference::Model<double>(reference_shape(c.config), parameters)
                                  .loss(batch.reference_tokens(), &gradients, nullptr);
      double total = 0;
      for (size_t i = 0; i < losses.size(); ++i) {
        EXPECT_TRUE(batch.targets[i] >= 0 || losses[i] == 0);
        total += static_cast<double>(losses[i]) * batch.weights[i];
      }
      EXPECT_NEAR(total, expected, 2e-6 * expected) << c.name;
      for (const ParameterSlot& slot : tiny.buffers->slots()) {
        const Parameter& parameter = *slot.parameter;
        const auto& want = gradients.at(parameter.name);
        const float* got = parameter.gradient.data<float>();
        // fp32 sums over 22 rows, 40 columns and 3 layers of values of order one: a few dozen roundings of
        // 6e-8.
        const double tolerance = 1e-5 * (largest(want) + 1e-3);
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], tolerance) << c.name << ": " << parameter.name << "[" << i << "]";
        }
        for (int64_t i = parameter.shape.elements(); i < parameter.allocated_shape().elements(); ++i) {
          ASSERT_EQ(got[i], 0) << "vocabulary padding of " << parameter.name << " has a gradient";
        }
      }
    }
  }
}

TEST(Transformer, HalfPrecisionGradientsPointTheSameWay) {
  for (const Case& c : cases()) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      TinyModel tiny(c.config, dtype, 5);
      TinyBatch batch(2, 11, c.config.vocab_size, 9);
      losses_of(tiny, batch.tokens());
      const auto parameters = tiny.parameter_map<double>();  // the rounded weights
      reference::ParameterMap<double> gradients;
      reference::Model<double>(reference_shape(c.config), parameters)
          .loss(batch.reference_tokens(), &gradients, nullptr);
      for (const ParameterSlot& slot : tiny.buffers->slots()) {
        const auto& want = gradients.at(slot.parameter->name);
        const float* got = slot.parameter->gradient.data<float>();
        double error = 0, norm = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          error += (got[i] - want[i]) * (got[i] - want[i]);
          norm += want[i] * want[i];
        }
        // Activations are rounded about ten times a layer (2^-9 each in bf16, 2^-12 in fp16): independent
        // errors add as roots.
        // ReLU's derivative jumps, so an activation that rounding moves across zero changes its gradient
        // wholly.
        const double jumps = c.config.activation == Activation::relu ? 3 : 1;
        const double bound = jumps * (dtype == DType::bf16 ? 0.06 : 0.012);
        EXPECT_LE(std::sqrt(error), bound * std::sqrt(norm) + 1e-4) << c.name << ": " << slot.parameter->name;
      }
    }
  }
}

TEST(Transformer, RecomputeGivesTheSameBitsWithDropout) {
  for (Case c : cases()) {
    c.config.hidden_dropout = c.config.attention_dropout = c.config.embedding_dropout = 0.2;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyModel tiny(c.config, dtype, 5);
      TinyBatch batch(2, 13, c.config.vocab_size, 9);
      batch.reset_types(c.config.token_types);
      batch.reset_documents({0, 6});
      batch.view.first_position = 1000;
      const auto losses = losses_of(tiny, batch.tokens(), Recompute::none, true, true);
      const auto gradients = gradients_of(tiny);
      for (const Recompute recompute : {Recompute::attention, Recompute::full}) {
        EXPECT_EQ(losses_of(tiny, batch.tokens(), recompute, true, true), losses) << c.name;
        EXPECT_EQ(gradients_of(tiny), gradients) << c.name;
      }
      // Other positions draw other masks.
      batch.view.first_position = 2000;
      EXPECT_NE(losses_of(tiny, batch.tokens(), Recompute::none, true, true), losses) << c.name;
    }
  }
}

TEST(Transformer, ThreadsDoNotChangeABit) {
  for (const Case& c : cases()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      TinyBatch batch(3, 17, c.config.vocab_size, 2);
      TinyModel one(c.config, dtype, 5, 1), two(c.config, dtype, 5, 2), five(c.config, dtype, 5, 5);
      const auto losses = losses_of(one, batch.tokens());
      EXPECT_EQ(losses_of(two, batch.tokens()), losses) << c.name;
      EXPECT_EQ(losses_of(five, batch.tokens()), losses) << c.name;
      EXPECT_EQ(gradients_of(two), gradients_of(one)) << c.name;
      EXPECT_EQ(gradients_of(five), gradients_of(one)) << c.name;
    }
  }
}

TEST(Transformer, LossWithoutGradientIsTheSame) {
  for (const Case& c : cases()) {
    TinyModel tiny(c.config, DType::f32, 5);
    TinyBatch batch(2, 9, c.config.vocab_size, 4);
    const auto losses = losses_of(tiny, batch.tokens());
    EXPECT_EQ(losses_of(tiny, batch.tokens(), Recompute::none, false), losses) << c.name;
    EXPECT_EQ(tiny.saved.size(), 0u);
    EXPECT_EQ(tiny.activations.used(), 0u);
  }
}

TEST(Transformer, ADocumentDoesNotFeelItsNeighbours) {
  for (const Case& c : cases()) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      TinyModel tiny(c.config, DType::f32, 5);
      TinyBatch batch(1, 14, c.config.vocab_size, 8);
      batch.reset_documents({0, 6});
      const auto before = losses_of(tiny, batch.tokens(), recompute);
      for (size_t i = 0; i < 6; ++i)
        batch.ids[i] = (batch.ids[i] + 1) % static_cast<int32_t>(c.config.vocab_size);
      const auto after = losses_of(tiny, batch.tokens(), recompute);
      for (size_t i = 6; i < 14; ++i) EXPECT_EQ(before[i], after[i]) << c.name;
      EXPECT_NE(before[1], after[1]);
      // Alone in a batch of its own it loses the same.
      TinyBatch alone(1, 8, c.config.vocab_size, 8);
      for (size_t i = 0; i < 8; ++i) {
        alone.ids[i] = batch.ids[6 + i];
        alone.targets[i] = batch.targets[6 + i];
      }
      const auto lonely = losses_of(tiny, alone.tokens(), recompute);
      for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(lonely[i], after[6 + i], 1e-5) << c.name;
    }
  }
}

TEST(Transformer, ActivationBytesAreWhatTheFormulaSays) {
  for (const Case& c : cases()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::full}) {
        TinyModel tiny(c.config, dtype, 5);
        TinyBatch batch(4, 32, c.config.vocab_size, 3);
        losses_of(tiny, batch.tokens(), recompute);
        const double predicted =
            static_cast<double>(tiny.model.kept_bytes(128, size_of(dtype), recompute) +
                                tiny.model.transient_bytes(128, size_of(dtype), recompute));
        const double measured =
            static_cast<double>(tiny.activations.high_water() + tiny.transient.high_water());
        EXPECT_NEAR(measured / predicted, 1, 0.03) << c.name << " recompute " << static_cast<int>(recompute);
      }
    }
  }
}

TEST(Transformer, SecondMicroBatchAddsToTheFirst) {
  const ModelConfig config = tiny_config(ModelForm::gpt2);
  TinyModel tiny(config, DType::f32, 5);
  TinyBatch batch(4, 9, config.vocab_size, 4);
  losses_of(tiny, batch.tokens());
  const auto whole = gradients_of(tiny);
  tiny.buffers->forget_gradients();
  for (const int64_t begin : {0, 3}) {  // three rows, then one
    const int64_t rows = begin == 0 ? 3 : 1;
    TokenBatch part = batch.tokens();
    part.batch = rows;
    const auto cut = [&](TensorView view) { return view.slice(begin * 9, (begin + rows) * 9); };
    part.token_ids = cut(part.token_ids);
    part.positions = cut(part.positions);
    part.targets = cut(part.targets);
    part.loss_weights = cut(part.loss_weights);
    std::vector<float> losses(static_cast<size_t>(rows * 9));
    loss_and_gradient(tiny.model, Pass{tiny.exec, part, tiny.saved}, DType::f32,
                      TensorView(losses.data(), DType::f32, {rows * 9}));
  }
  const auto parts = gradients_of(tiny);
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 2e-6) << i;
}

// Hidden states and logits of all positions at once, of decoders and encoders.
TEST(Transformer, EncodeGivesTheOraclesHiddenStates) {
  for (const Case& c : cases()) {
    for (const bool documents : {false, true}) {
      TinyModel tiny(c.config, DType::f32, 5);
      TinyBatch batch(2, 12, c.config.vocab_size, 9);
      batch.reset_types(c.config.token_types);
      if (documents) batch.reset_documents({0, 4, 5});
      const auto parameters = tiny.parameter_map<double>();
      reference::Values<double> want_logits, want;
      reference::Model<double>(reference_shape(c.config), parameters)
          .loss(batch.reference_tokens(), nullptr, &want_logits, &want);
      const int64_t hidden_size = c.config.hidden_size;
      Tensor hidden(DType::f32, {24, hidden_size}), logits(DType::f32, {24, c.config.padded_vocabulary()});
      tiny.model.encode(tiny.exec, batch.tokens(), hidden);
      tiny.model.logits(tiny.exec, hidden, logits);
      EXPECT_EQ(tiny.workspace.used(), 0u);
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(hidden.data<float>()[i], want[i], 2e-5) << c.name;
      for (int64_t t = 0; t < 24; ++t) {
        for (int64_t v = 0; v < c.config.vocab_size; ++v) {
          ASSERT_NEAR(logits.data<float>()[t * c.config.padded_vocabulary() + v],
                      want_logits[static_cast<size_t>(t * c.config.vocab_size + v)], 2e-5)
              << c.name << " position " << t;
        }
      }
      if (!c.config.pooler) continue;
      const reference::Values<double> first(want.begin(), want.begin() + hidden_size);
      const auto pooled =
          reference::linear(first, parameters.at("pooler.weight"), parameters.at("pooler.bias"), 1,
                            static_cast<int>(hidden_size), static_cast<int>(hidden_size));
      Tensor got(DType::f32, {1, hidden_size});
      tiny.model.pool(tiny.exec, hidden.view().slice(0, 1), got);
      for (size_t i = 0; i < pooled.size(); ++i)
        EXPECT_NEAR(got.data<float>()[i], std::tanh(pooled[i]), 1e-5);
    }
  }
}

TEST(Transformer, ModelsWithoutAHeadHaveHiddenStatesOnly) {
  ModelConfig with_head = tiny_config(ModelForm::gpt2), config = with_head;
  config.head = HeadKind::none;
  config.resolve();
  TinyModel tiny(config, DType::f32, 5), other(with_head, DType::f32, 5);
  TinyBatch batch(1, 12, config.vocab_size, 9);
  Tensor hidden(DType::f32, {12, config.hidden_size}), same(DType::f32, {12, config.hidden_size}),
      logits(DType::f32, {12, config.padded_vocabulary()});
  tiny.model.encode(tiny.exec, batch.tokens(), hidden);
  other.model.encode(other.exec, batch.tokens(), same);
  EXPECT_EQ(std::memcmp(hidden.view().raw(), same.view().raw(), hidden.view().bytes()), 0);
  EXPECT_THROW(tiny.model.logits(tiny.exec, hidden, logits), Error);
  EXPECT_THROW(losses_of(tiny, batch.tokens()), Error);
  EXPECT_THROW(tiny.model.pool(tiny.exec, hidden.view().slice(0, 1), same.view().slice(0, 1)), Error);
}

TEST(Transformer, EncodersRefuseToGenerate) {
  for (const Case& c : cases()) {
    if (c.config.causal) continue;
    TinyModel tiny(c.config, DType::f32, 5);
    Arena arena("cache", 64u << 20);
    ModelCache cache = make_cache(c.config, DType::f32, 4, arena);
    std::vector<int32_t> ids(2, 1);
    EXPECT_THROW(
        tiny.model.forward_cached(tiny.exec, TensorView(ids.data(), DType::i32, {2}), cache, TensorView()),
        Error);
  }
}

TEST(Transformer, CachedForwardGivesTheLogitsOfTheWholeSequence) {
  for (const Case& c : cases()) {
    if (!c.config.causal) continue;
    TinyModel tiny(c.config, DType::f32, 5);
    TinyBatch batch(1, 20, c.config.vocab_size, 6);
    reference::Values<double> expected;
    const auto parameters = tiny.parameter_map<double>();
    reference::Model<double>(reference_shape(c.config), parameters)
        .loss(batch.reference_tokens(), nullptr, &expected);
    Arena arena("cache", 64u << 20);
    const int64_t padded = c.config.padded_vocabulary();
    Tensor logits(DType::f32, {20, padded});
    for (const std::vector<int64_t>& pieces :
         {std::vector<int64_t>{20}, std::vector<int64_t>{7, 1, 1, 11}, std::vector<int64_t>(20, 1)}) {
      ModelCache cache = make_cache(c.config, DType::f32, 20, arena);
      cache.whole_length = 20;  // or the first pieces would turn as short sequences do
      int64_t at = 0;
      for (const int64_t piece : pieces) {
        tiny.model.forward_cached(tiny.exec, TensorView(batch.ids.data() + at, DType::i32, {piece}), cache,
                                  logits.view().slice(at, at + piece));
        at += piece;
      }
      for (int64_t t = 0; t < 20; ++t) {
        for (int64_t v = 0; v < c.config.vocab_size; ++v) {
          ASSERT_NEAR(logits.data<float>()[t * padded + v],
                      expected[static_cast<size_t>(t * c.config.vocab_size + v)], 2e-5)
              << c.name << " position " << t;
        }
      }
    }
  }
}

TEST(Transformer, CacheRefusesMoreThanItHolds) {
  const ModelConfig config = tiny_config(ModelForm::gpt2);
  TinyModel tiny(config, DType::f32, 5);
  Arena arena("cache", 64u << 20);
  ModelCache cache = make_cache(config, DType::f32, 4, arena);
  std::vector<int32_t> ids(5, 1);
  EXPECT_THROW(
      tiny.model.forward_cached(tiny.exec, TensorView(ids.data(), DType::i32, {5}), cache, TensorView()),
      Error);
}

}  // namespace
}  // namespace megalith
