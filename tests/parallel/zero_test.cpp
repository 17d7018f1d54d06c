// ZeRO's stages train the same model and hold what their formula says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/train/training_step.h"
#include "tests/parallel/layout_run.h"

namespace megalith {
namespace {

Recipe with_stage(Recipe recipe, int64_t stage) {
  recipe.parallel.zero_stage = stage;
  recipe.parallel.zero_persistent_elements = 100;  // norms stay, blocks do not
  recipe.parallel.bucket_elements = 3000;          // several buckets
  recipe.resolve();
  return recipe;
}

TEST(Zero, StagesAreEqualBitForBitWithoutAccumulation) {
  for (const ModelForm form : {ModelForm::gpt2, ModelForm::llama}) {
    for (const bool tied : {true, false}) {
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        Recipe recipe = layout_recipe(form);
        recipe.model.tied_embeddings = tied;
        recipe.model.hidden_dropout = recipe.model.embedding_dropout = 0.1;
        recipe.train.precision = precision;
        recipe.train.recompute = tied ? Recompute::full : Recompute::none;
        recipe.train.micro_batch = 4;  // 11 samples on 3 ranks: 4, 4, 3
        const LayoutRun expected = run_layout(3, with_stage(recipe, 0));
        for (const int64_t stage : {1, 2, 3})
          expect_equal(run_layout(3, with_stage(recipe, stage)), expected, fmt::format("stage {}", stage));
      }
    }
  }
}

TEST(Zero, StagesAreEqualBitForBitWithTensorParallel) {
  for (const bool sequence_parallel : {false, true}) {
    Recipe recipe = layout_recipe();
    recipe.parallel.tensor = 2;
    recipe.parallel.sequence_parallel = sequence_parallel;
    recipe.train.micro_batch = 6;
    const LayoutRun expected = run_layout(4, with_stage(recipe, 0));
    for (const int64_t stage : {1, 2, 3})
      expect_equal(run_layout(4, with_stage(recipe, stage)), expected, fmt::format("stage {}", stage));
  }
}

// 6 micro-batches on 4 ranks: the last two have one less, and take part in what the others exchange. Stages 2
// and 3 sum every micro-batch over ranks before they add up, so that they agree with each other, and to
// rounding with stages 0 and 1.
TEST(Zero, AccumulationAndIdleRanksChangeOnlyTheOrderOfSums) {
  for (const bool tied : {true, false}) {
    Recipe recipe = layout_recipe();
    recipe.model.tied_embeddings = tied;
    const LayoutRun zero = run_layout(4, with_stage(recipe, 0)), one = run_layout(4, with_stage(recipe, 1)),
                    two = run_layout(4, with_stage(recipe, 2)), three = run_layout(4, with_stage(recipe, 3));
    expect_equal(one, zero, "stage 1");
    expect_equal(three, two, "stage 3");
    ASSERT_EQ(two.lines.size(), zero.lines.size());
    for (const auto& [step, line] : zero.lines) {
      const auto a = nlohmann::json::parse(line), b = nlohmann::json::parse(two.lines.at(step));
      for (const char* key : {"loss", "gradient_norm"}) {
        const double expected = a[key].get<double>();
        EXPECT_NEAR(b[key].get<double>(), expected, 1e-5 * std::abs(expected)) << key << " of step " << step;
      }
    }
  }
}

// Parts in files, several micro-batches a step, one rank without the last of them; also on a single
// data-parallel rank, whose numbers are those of one process when a step is one micro-batch.
TEST(Zero, WeightsAndGradientsInFilesChangeNoBit) {
  const auto offloaded = [](Recipe recipe) {
    recipe.parallel.zero_offload_directory = scratch("disk").string();
    recipe.optimizer.offload_directory = recipe.parallel.zero_offload_directory;
    recipe.resolve();
    return recipe;
  };
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const bool tied : {true, false}) {
      Recipe recipe = layout_recipe();
      recipe.train.precision = precision;
      recipe.model.tied_embeddings = tied;
      recipe = with_stage(recipe, 3);
      expect_equal(run_layout(4, offloaded(recipe)), run_layout(4, recipe), "4 ranks");
      recipe.train.micro_batch = recipe.train.global_batch;
      expect_equal(run_layout(1, offloaded(recipe)), run_layout(1, recipe), "1 rank");
      recipe.parallel.tensor = 2;
      recipe.parallel.sequence_parallel = tied;
      expect_equal(run_layout(2, offloaded(recipe)), run_layout(2, recipe), "2 tensor ranks");
    }
  }
}

TEST(Zero, ARunWithFilesGoesOnFromItsCheckpointsAndThoseOfOthers) {
  Recipe recipe = with_stage(layout_recipe(), 3);
  recipe.train.precision = Precision::bf16;
  const LayoutRun expected = run_layout(3, recipe);
  recipe.schedule.decay_steps = recipe.train.steps;
  const std::string disk = scratch("disk").string();
  const std::filesystem::path run = scratch("parts");
  for (const auto& [steps, directory] : {std::pair{5, disk}, {10, std::string()}, {20, disk}}) {
    recipe.train.steps = steps;
    recipe.parallel.zero_offload_directory = directory;
    run_ranks(3, [&](Communicator& ranks) { train(recipe, into(run), ranks); });
  }
  EXPECT_EQ(read_run(run).lines, expected.lines);
  EXPECT_EQ(read_run(run).tensors, expected.tensors);
}

TEST(Zero, AllRanksSkipAnOverflowTogether) {
  Recipe recipe = layout_recipe();
  recipe.train.micro_batch = 6;
  recipe.train.precision = Precision::fp16;
  recipe.train.loss_scale_start = 4294967296.0;
  const LayoutRun expected = run_layout(2, with_stage(recipe, 0));
  EXPECT_NE(expected.lines.begin()->second.find("\"skipped\":true"), std::string::npos);
  for (const int64_t stage : {2, 3})
    expect_equal(run_layout(2, with_stage(recipe, stage)), expected, fmt::format("stage {}", stage));
}

// DeepSpeed's 2 + 4 + 12, 2 + 4 + 12/N, 2 + 16/N and 18/N bytes a parameter for our element sizes (bf16
// weights, fp32 gradients, master weights and two moments); units that are whole for a moment come on top and
// are predicted.
TEST(Zero, MemoryFollowsTheFormula) {
  Recipe recipe = layout_recipe();
  recipe.train.precision = Precision::bf16;
  recipe.train.micro_batch = 4;
  recipe.train.global_batch = 12;
  for (const int64_t stage : {0, 1, 2, 3}) {
    for (const int ranks : {2, 3}) {
      const Recipe staged = with_stage(recipe, stage);
      std::vector<std::vector<MemoryLine>> lines(static_cast<size_t>(ranks));
      int64_t parameters = 0;
      std::mutex mutex;
      run_ranks(ranks, [&](Communicator& world) {
        Recipe own = staged;
        own.model.resolve();
        TrainingArenas arenas;
        const ExecContext exec{arenas.workspace, 1};
        ParallelGroups groups(world, 1, 1);
        TrainingStep step(own, arenas, exec, groups);
        step.initialize();
        const BatchSources sources =
            open_batch_sources({{own.data.train[0].path, 1.0}}, {}, {}, "", {.sequence_length = 16});
        step.run(*sources.train, TrainingState(), own.train.global_batch, 1e-3, 1);
        const std::lock_guard lock(mutex);
        parameters = step.parameters().elements();
        lines[static_cast<size_t>(world.rank())] =
            measure_memory(predict_memory(own, groups.grid, groups.place), arenas);
      });
      const double n = static_cast<double>(ranks);
      const double bytes[] = {18.0, 6.0 + 12.0 / n, 2.0 + 16.0 / n, 18.0 / n};
      for (const auto& rank : lines) {
        double states = 0;
        for (const MemoryLine& line : rank) {
          if (line.kind == "weights" || line.kind == "gradients" || line.kind == "optimizer states")
            states += static_cast<double>(line.measured);
          if (line.kind == "workspace") continue;  // holds scratch of operations beyond the prediction
          EXPECT_NEAR(static_cast<double>(line.measured), static_cast<double>(line.predicted),
                      0.05 * static_cast<double>(line.predicted))
              << "stage " << stage << ", " << ranks << " ranks: " << line.kind;
        }
        EXPECT_NEAR(states / static_cast<double>(parameters) / bytes[stage], 1, 0.05)
            << stage << " " << ranks;
      }
    }
  }
}

TEST(Zero, WhatCannotCombineIsRefusedWithTheReason) {
  Recipe recipe = layout_recipe();
  recipe.parallel.pipeline = 2;
  for (const int64_t stage : {2, 3}) {
    try {
      with_stage(recipe, stage);
      FAIL() << "accepted a pipeline with stage " << stage;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("which pipeline stages do at different times"));
    }
  }
}

}  // namespace
}  // namespace megalith
