// Tensor and sequence parallelism: the ranks of a group together are the model of one process.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "megalith/base/error.h"
#include "megalith/comm/thread_communicator.h"
#include "tests/model/tiny_model.h"

namespace megalith {
namespace {

struct Layout {
  int ranks = 1;
  bool sequence_parallel = false;
};

// What a pass gave, put together from all ranks.
struct Outcome {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> gradients;
  CommunicationCounters loss_counters, pass_counters;
};

ModelConfig config_for(ModelForm form) {
  ModelConfig config = tiny_config(form);
  config.num_heads = form == ModelForm::gpt2 ? 12 : 24;
  config.num_kv_heads = 12;
  config.head_size = 4;
  config.ffn_hidden_size = 48;
  config.hidden_dropout = config.attention_dropout = config.embedding_dropout = 0.1;
  return config;
}

// Every gradient must be found at its place in the whole; copies must be equal bit for bit.
void collect(TinyModel& tiny, Outcome& outcome, std::mutex& mutex) {
  const std::lock_guard lock(mutex);
  for (const ParameterSlot& slot : tiny.buffers->slots()) {
    const Parameter& parameter = *slot.parameter;
    auto [found, is_new] = outcome.gradients.try_emplace(parameter.name);
    std::vector<float>& whole = found->second;
    whole.resize(static_cast<size_t>(parameter.shape.elements()), 0.0f);
    const float* data = parameter.gradient.data<float>();
    const int64_t elements = parameter.local_shape().elements();
    parameter.slice.for_each_run(
        parameter.shape, 0, elements, [&](int64_t local, int64_t global, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            float& place = whole[static_cast<size_t>(global + i)];
            if (!is_new && parameter.slice.whole()) {
              EXPECT_EQ(place, data[local + i]) << parameter.name << " differs between ranks";
            }
            place = data[local + i];
          }
        });
    for (int64_t i = elements; i < parameter.allocated_shape().elements(); ++i) {
      EXPECT_EQ(data[i], 0) << "padding of " << parameter.name << " has a gradient";
    }
  }
}

Outcome run(const ModelConfig& config, const Layout& layout, DType dtype, Recompute recompute) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(layout.ranks, [&](Communicator& group) {
    TinyModel tiny(config, dtype, 5, 1, TensorParallel(group, layout.sequence_parallel));
    TinyBatch batch(2, 12, config.vocab_size, 9);
    batch.reset_types(config.token_types);
    batch.view.first_position = 1000;
    const CommunicationCounters before = group.counters();
    const std::vector<float> without = losses_of(tiny, batch.tokens(), recompute, false, true);
    const CommunicationCounters between = group.counters();
    const std::vector<float> losses = losses_of(tiny, batch.tokens(), recompute, true, true);
    const CommunicationCounters after = group.counters();
    EXPECT_EQ(losses, without);
    EXPECT_EQ(tiny.saved.size(), 0u);
    tiny.buffers->sum_partial_gradients(tiny.exec, tiny.model.tensor_parallel(), 0,
                                        tiny.buffers->slots().size());
    collect(tiny, outcome, mutex);
    if (group.rank() == 0) {
      outcome.losses = losses;
      outcome.loss_counters = {between.calls - before.calls, between.bytes - before.bytes, 0};
      outcome.pass_counters = {after.calls - between.calls, after.bytes - between.bytes, 0};
    }
  });
  return outcome;
}

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference;
  for (size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  return norm(difference) / (norm(b) + 1e-30);
}

// Sums of a matrix product are cut in two to six, so each of some ten products and norms between a gradient
// and the loss rounds differently, by 6e-8 of its largest terms: together well below 1e-5 in fp32. In bf16
// (2^-9) and fp16 (2^-12) partial sums are rounded as well.
double bound(DType dtype) {
  return dtype == DType::f32 ? 1e-5 : dtype == DType::bf16 ? 0.06 : 0.01;
}

void expect_same(const Outcome& got, const Outcome& expected, DType dtype, const std::string& what) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  EXPECT_LE(relative_difference(got.losses, expected.losses), bound(dtype)) << what;
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, values] : expected.gradients) {
    EXPECT_LE(relative_difference(got.gradients.at(name), values), bound(dtype)) << what << ": " << name;
  }
}

TEST(TensorParallel, GivesTheLossesAndGradientsOfOneProcess) {
  for (const ModelForm form : {ModelForm::gpt2, ModelForm::llama}) {
    for (const bool tied : {true, false}) {
      ModelConfig config = config_for(form);
      config.tied_embeddings = tied;
      const Outcome one = run(config, {}, DType::f32, Recompute::none);
      for (const int ranks : {2, 3, 4, 6}) {
        for (const bool sequence_parallel : {false, true}) {
          for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::full}) {
            const Outcome many = run(config, {ranks, sequence_parallel}, DType::f32, recompute);
            expect_same(
                many, one, DType::f32,
                fmt::format("{} of {} ranks{}, recompute {}", tied ? "tied" : "untied", ranks,
                            sequence_parallel ? ", sequence parallel" : "", static_cast<int>(recompute)));
          }
        }
      }
    }
  }
}

// Norms, slopes, biases and heads of other families are cut, copied or summed as they should be.
TEST(TensorParallel, OtherFamiliesGiveTheSame) {
  for (const NamedConfig& family : tiny_families()) {
    ModelConfig config = family.config;
    config.hidden_dropout = config.attention_dropout = config.embedding_dropout = 0.1;
    const Outcome one = run(config, {}, DType::f32, Recompute::none);
    for (const bool sequence_parallel : {false, true}) {
      for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::full}) {
        expect_same(run(config, {2, sequence_parallel}, DType::f32, recompute), one, DType::f32,
                    fmt::format("{}{}, recompute {}", family.name,
                                sequence_parallel ? ", sequence parallel" : "", static_cast<int>(recompute)));
      }
    }
  }
}

// Ranks whose part of the vocabulary is nothing but padding.
TEST(TensorParallel, FewerTokensThanRanks) {
  ModelConfig config = config_for(ModelForm::gpt2);
  config.vocab_size = 5;
  config.vocab_multiple = 1;
  for (const bool tied : {true, false}) {
    config.tied_embeddings = tied;
    const Outcome one = run(config, {}, DType::f32, Recompute::none);
    expect_same(run(config, {6, true}, DType::f32, Recompute::none), one, DType::f32,
                tied ? "tied" : "untied");
  }
}

// Sums of a half-precision type are compared with one process's by the error that rounding explains; see
// transformer_test for the bound.
TEST(TensorParallel, WorksInHalfPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const ModelConfig config = config_for(ModelForm::gpt2);
    const Outcome one = run(config, {}, dtype, Recompute::none);
    for (const bool sequence_parallel : {false, true}) {
      expect_same(run(config, {2, sequence_parallel}, dtype, Recompute::none), one, dtype,
                  sequence_parallel ? "sequence parallel" : "");
    }
  }
}

// Two all-reduces forward and two backward a layer, one behind the embedding and one before the head, and
// one exchange of two numbers a row for the loss.
TEST(TensorParallel, ExchangesWhatTheMethodSays) {
  for (const ModelForm form : {ModelForm::gpt2, ModelForm::llama}) {
    const ModelConfig config = config_for(form);
    const uint64_t layers = static_cast<uint64_t>(config.num_layers), rows = 24;
    const uint64_t stream = rows * static_cast<uint64_t>(config.hidden_size) * 4, scalars = rows * 2 * 4 * 2;
    const Outcome whole = run(config, {2, false}, DType::f32, Recompute::none);
    EXPECT_EQ(whole.loss_counters.calls, 2 * layers + 2);
    EXPECT_EQ(whole.loss_counters.bytes, (2 * layers + 1) * stream + scalars);
    EXPECT_EQ(whole.pass_counters.calls, 4 * layers + 3);
    EXPECT_EQ(whole.pass_counters.bytes, (4 * layers + 2) * stream + scalars);
    // An all-reduce is a reduce-scatter and an all-gather, so twice the calls are the equal volume.
    const Outcome rows_cut = run(config, {2, true}, DType::f32, Recompute::none);
    EXPECT_EQ(rows_cut.loss_counters.calls, 2 * (2 * layers + 1) + 1);
    EXPECT_EQ(rows_cut.pass_counters.calls, 2 * (4 * layers + 2) + 1);
    EXPECT_EQ(rows_cut.pass_counters.bytes, 2 * (4 * layers + 2) * stream + scalars);
  }
}

// Case: a target outside the local part of the vocabulary must not meet the padding.
TEST(TensorParallel, PaddingColumnsTakeNoPartInTheLoss) {
  ModelConfig config = config_for(ModelForm::gpt2);
  config.tied_embeddings = false;
  for (const auto& [vocabulary, multiple] : {std::pair<int64_t, int64_t>{101, 128}, {257, 1}, {50257, 1}}) {
    config.vocab_size = vocabulary;
    config.vocab_multiple = multiple;
    for (const int ranks : {1, 2, 4}) {
      run_ranks(ranks, [&, vocabulary = vocabulary](Communicator& group) {
        TinyModel tiny(config, DType::f32, 5, 1, TensorParallel(group, false));
        for (const ParameterSlot& slot : tiny.buffers->slots()) {
          if (slot.parameter->name != "head.weight") continue;
          for (float& value : slot.parameter->value.span<float>()) value = 0;
        }
        TinyBatch batch(1, 12, vocabulary, 9);
        batch.targets = {0, 63, 64, 100, -1, 1, 99, 50, 51, 2, 3, static_cast<int32_t>(vocabulary - 1)};
        const std::vector<float> losses = losses_of(tiny, batch.tokens());
        for (size_t i = 0; i < losses.size(); ++i) {
          const double expected = batch.targets[i] < 0 ? 0 : std::log(static_cast<double>(vocabulary));
          EXPECT_NEAR(losses[i], expected, 2e-6)
              << vocabulary << " tokens on " << ranks << " ranks, row " << i;
        }
      });
    }
  }
}

TEST(TensorParallel, InitialWeightsAreThoseOfOneProcess) {
  const ModelConfig config = config_for(ModelForm::llama);
  Outcome one, three;
  for (Outcome* outcome : {&one, &three}) {
    std::mutex mutex;
    run_ranks(outcome == &one ? 1 : 3, [&](Communicator& group) {
      TinyModel tiny(config, DType::f32, 5, 1, TensorParallel(group, false));
      initialize_parameters(tiny.exec, tiny.buffers->slots(), 17, {0, tiny.buffers->elements()},
                            tiny.buffers->gradients());
      collect(tiny, *outcome, mutex);
    });
  }
  EXPECT_EQ(one.gradients, three.gradients);
}

TEST(TensorParallel, ModelsThatOnlyOneRankWasDescribedOfCannotRun) {
  const ModelConfig config = config_for(ModelForm::gpt2);
  TinyModel tiny(config, DType::f32, 5, 1, TensorParallel::described(1, 2, false));
  TinyBatch batch(1, 12, config.vocab_size, 9);
  EXPECT_THROW(losses_of(tiny, batch.tokens()), Error);
}

TEST(TensorParallel, HeadsAndColumnsThatCannotBeSharedAreErrors) {
  const ModelConfig config = config_for(ModelForm::gpt2);
  EXPECT_THROW(Transformer(config, TensorParallel::described(0, 5, false)), Error);
  EXPECT_THROW(Transformer(config, TensorParallel::described(0, 8, false)), Error);
}

}  // namespace
}  // namespace megalith
