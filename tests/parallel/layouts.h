// Training a small model in a layout of ranks (threads), and what came out of it.
#pragma once

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "megalith/comm/thread_communicator.h"
#include "megalith/train/message_plan.h"
#include "megalith/train/training_step.h"
#include "tests/train/small_run.h"

namespace megalith {

struct Layout {
  int tensor = 1, data = 1, pipeline = 1;
  bool sequence_parallel = false;
  int64_t zero_stage = 0;
  Recompute recompute = Recompute::none;

  int ranks() const { return tensor * data * pipeline; }
};

inline std::string to_string(const Layout& layout) {
  return fmt::format("tensor {}{}, pipeline {}, data {}, ZeRO {}, recompute {}", layout.tensor,
                     layout.sequence_parallel ? " with sequence parallel" : "", layout.pipeline, layout.data,
                     layout.zero_stage, kRecomputeNames[static_cast<size_t>(layout.recompute)]);
}

/// Heads, columns and sequence can be shared by 2, 3, 4, 6 and 8 ranks; the vocabulary of 23 by none.
inline Recipe layout_recipe(ModelForm form) {
  Recipe recipe = small_recipe();
  const int64_t vocabulary = recipe.model.vocab_size;
  recipe.model = ModelConfig::defaults(form);
  recipe.model.vocab_size = vocabulary;
  recipe.model.num_layers = 2;
  recipe.model.hidden_size = 48;
  recipe.model.num_heads = 24;
  recipe.model.head_size = 2;
  recipe.model.rope_fraction = 1;
  recipe.model.ffn_hidden_size = 48;
  recipe.model.max_positions = 24;
  recipe.model.vocab_multiple = 8;
  recipe.model.hidden_dropout = recipe.model.attention_dropout = recipe.model.embedding_dropout = 0.1;
  recipe.model.resolve();
  recipe.data.train = {{counting_dataset(24, 60, vocabulary), 1.0}};
  recipe.data.sequence_length = 24;
  recipe.train.steps = 20;
  recipe.train.micro_batch = 1;
  recipe.train.global_batch = 4;
  recipe.train.threads = 1;
  // A key's bias changes no score, so its gradient is the noise of rounding, which Adam would blow up to full
  // updates; an epsilon above the noise keeps it noise.
  recipe.optimizer.epsilon = 1e-4;
  recipe.resolve();
  return recipe;
}

inline Recipe with_layout(Recipe recipe, const Layout& layout) {
  recipe.parallel.tensor = layout.tensor;
  recipe.parallel.pipeline = layout.pipeline;
  recipe.parallel.sequence_parallel = layout.sequence_parallel;
  recipe.parallel.zero_stage = layout.zero_stage;
  recipe.train.recompute = layout.recompute;
  recipe.resolve();
  check_layout(recipe, layout.ranks());
  return recipe;
}

using Tensors = std::map<std::string, std::vector<float>>;

/// What all ranks together hold of an optimizer's buffer. Every element comes from some rank; copies must be
/// bit for bit equal.
class Gathered {
 public:
  void add(const ParameterBuffers& parameters, const Optimizer& optimizer, TensorView owned) {
    const std::lock_guard lock(mutex_);
    const PartRange range = optimizer.range();
    for (const ParameterSlot& slot : parameters.slots()) {
      const Parameter& parameter = *slot.parameter;
      std::vector<float>& whole = tensors_[parameter.name];
      std::vector<bool>& seen = seen_[parameter.name];
      whole.resize(static_cast<size_t>(parameter.shape.elements()));
      seen.resize(whole.size());
      const int64_t begin = std::max(slot.offset, range.begin);
      const int64_t end = std::min(slot.offset + parameter.local_shape().elements(), range.end);
      if (begin >= end) continue;
      parameter.slice.for_each_run(
          parameter.shape, begin - slot.offset, end - slot.offset,
          [&](int64_t local, int64_t global, int64_t count) {
            for (int64_t i = 0; i < count; ++i) {
              const float value = owned.data<float>()[slot.offset + local + i - range.begin];
              const size_t at = static_cast<size_t>(global + i);
              if (seen[at]) {
                EXPECT_EQ(whole[at], value) << parameter.name << " differs over ranks";
              }
              whole[at] = value;
              seen[at] = true;
            }
          });
    }
  }
  Tensors take() {
    for (const auto& [name, seen] : seen_) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << name << " is held by no rank";
    }
    return std::move(tensors_);
  }

 private:
  std::mutex mutex_;
  Tensors tensors_;
  std::map<std::string, std::vector<bool>> seen_;
};

struct LayoutOutcome {
  std::vector<double> losses, gradient_norms;
  double validation_loss = 0;
  /// Of the first step (the first moment, which is proportional to them), and the weights after the last.
  Tensors gradients, weights;
  uint64_t bytes = 0, predicted_bytes = 0;       // of the first rank's arenas but the workspace
  CommunicationCounters pipeline, data, tensor;  // of the first rank, in the last step
};

inline BatchSources sources_of(const Recipe& recipe) {
  return open_batch_sources({{recipe.data.train[0].path, 1.0}}, {}, {}, "",
                            {.sequence_length = recipe.data.sequence_length});
}

/// What a rank exchanged in a step is what the plan says. How the gradients of norms and of data-parallel
/// ranks are cut into messages is left open, and of ZeRO 3's weights the plan knows the most.
inline void expect_predicted_messages(const Recipe& recipe, const ParallelGroups& groups,
                                      const std::array<CommunicationCounters, 3>& exchanged) {
  std::array<CommunicationCounters, 3> predicted;
  for (const MessageLine& line : predict_messages(recipe, groups.grid, groups.place)) {
    CommunicationCounters& counters = predicted[static_cast<size_t>(line.axis)];
    counters.calls += static_cast<uint64_t>(line.calls);
    counters.bytes += line.bytes;
  }
  const auto& [pipeline, data, tensor] = exchanged;
  EXPECT_EQ(pipeline.calls, predicted[0].calls);
  EXPECT_EQ(pipeline.bytes, predicted[0].bytes);
  EXPECT_EQ(data.calls > 0, groups.grid.data() > 1);
  if (recipe.parallel.zero_stage < 3) {
    EXPECT_EQ(data.bytes, predicted[1].bytes);
  } else {
    EXPECT_LE(data.bytes, predicted[1].bytes);
    EXPECT_GE(data.bytes, predicted[1].bytes / 2);
  }
  EXPECT_EQ(tensor.bytes, predicted[2].bytes);
  if (recipe.parallel.sequence_parallel || recipe.model.qk_norm) {
    EXPECT_GE(tensor.calls, predicted[2].calls);
  } else {
    EXPECT_EQ(tensor.calls, predicted[2].calls);
  }
}

/// Trains `recipe` for its steps.
inline LayoutOutcome train_layout(const Recipe& base, const Layout& layout, double loss_scale = 1) {
  const Recipe recipe = with_layout(base, layout);
  LayoutOutcome outcome;
  Gathered gradients, weights;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    ParallelGroups groups(world, layout.pipeline, layout.tensor);
    // A layout that fell back to fewer ranks would prove nothing.
    ASSERT_EQ(world.size(), layout.ranks());
    ASSERT_EQ(groups.tensor->size(), layout.tensor);
    ASSERT_EQ(groups.data->size(), layout.data);
    ASSERT_EQ(groups.pipeline->size(), layout.pipeline);
    TrainingArenas arenas;
    const ExecContext exec{arenas.workspace, 1};
    TrainingStep step(recipe, arenas, exec, groups);
    step.initialize();
    const BatchSources sources = sources_of(recipe);
    TrainingState state;
    std::vector<double> losses, norms;
    const std::array<Communicator*, 3> axes = {groups.pipeline.get(), groups.data.get(), groups.tensor.get()};
    std::array<CommunicationCounters, 3> exchanged;  // in the last step
    for (int64_t i = 0; i < recipe.train.steps; ++i) {
      for (size_t axis = 0; axis < axes.size(); ++axis) exchanged[axis] = axes[axis]->counters();
      const StepResult result = step.run(*sources.train, state, recipe.train.global_batch, 3e-3, loss_scale);
      EXPECT_FALSE(result.skipped) << result.not_finite;
      state.step += 1;
      state.updates += 1;
      state.consumed_samples += recipe.train.global_batch;
      losses.push_back(result.loss);
      norms.push_back(result.gradient_norm);
      if (i == 0) gradients.add(step.parameters(), step.optimizer(), step.optimizer().first_moment());
    }
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const CommunicationCounters& now = axes[axis]->counters();
      exchanged[axis] = {now.calls - exchanged[axis].calls, now.bytes - exchanged[axis].bytes, 0};
    }
    expect_predicted_messages(recipe, groups, exchanged);
    weights.add(step.parameters(), step.optimizer(), step.optimizer().master());
    const double validation_loss = step.validate(*sources.train, 5);
    // Whatever rank is asked, the answer is the same.
    const std::vector<std::string> answers =
        world.gather_texts(fmt::format("{} {} {}", losses, norms, validation_loss));
    for (const std::string& answer : answers) EXPECT_EQ(answer, answers[0]);
    if (world.rank() != 0) return;
    outcome.losses = losses;
    outcome.gradient_norms = norms;
    outcome.validation_loss = validation_loss;
    outcome.pipeline = exchanged[0];
    outcome.data = exchanged[1];
    outcome.tensor = exchanged[2];
    for (const MemoryLine& line : measure_memory(predict_memory(recipe, groups.grid, groups.place), arenas)) {
      if (line.kind == "workspace") continue;
      outcome.bytes += line.measured;
      outcome.predicted_bytes += line.predicted;
    }
  });
  outcome.gradients = gradients.take();
  outcome.weights = weights.take();
  return outcome;
}

inline double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

/// The largest difference of a tensor, relative to its norm. Tensors that are far below the others (the
/// gradient of a key's bias is nothing but rounding) are measured by a thousandth of the whole.
inline double difference(const Tensors& a, const Tensors& b) {
  double squares = 0;
  for (const auto& [name, values] : b) squares += norm(values) * norm(values);
  double most = a.size() == b.size() ? 0 : 1;
  for (const auto& [name, values] : b) {
    std::vector<float> delta = values;
    for (size_t i = 0; i < delta.size(); ++i) delta[i] -= a.at(name)[i];
    most = std::max(most, norm(delta) / (norm(values) + 1e-3 * std::sqrt(squares)));
  }
  return most;
}

inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

}  // namespace megalith
