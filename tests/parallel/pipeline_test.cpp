// A pipeline trains bit for bit what one process trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "tests/parallel/layout_run.h"

namespace megalith {
namespace {

struct Layout {
  int pipeline;
  int chunks;
  const char* split;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
};

const std::vector<Layout> kLayouts = {{2, 1, "even"}, {2, 2, "even"},
                                      {3, 1, "cost"}, {3, 1, "1,1,2"},
                                      {4, 1, "even"}, {2, 1, "1,3", PipelineSchedule::gpipe}};

Recipe with(Recipe recipe, const Layout& layout) {
  recipe.parallel.pipeline = layout.pipeline;
  recipe.parallel.virtual_pipeline = layout.chunks;
  recipe.parallel.layer_split = layout.split;
  recipe.parallel.pipeline_schedule = layout.schedule;
  recipe.resolve();
  return recipe;
}

std::string describe(const Layout& layout) {
  return fmt::format("{} stages, {} chunks, {} layers", layout.pipeline, layout.chunks, layout.split);
}

TEST(Pipeline, EqualsOneProcessBitForBit) {
  for (const ModelForm form : {ModelForm::gpt2, ModelForm::llama}) {
    for (const bool tied : {true, false}) {
      Recipe recipe = layout_recipe(form);
      recipe.model.tied_embeddings = tied;
      recipe.model.hidden_dropout = recipe.model.attention_dropout = recipe.model.embedding_dropout = 0.1;
      const LayoutRun expected = run_layout(1, recipe, "one");
      for (const Layout& layout : kLayouts)
        expect_equal(run_layout(layout.pipeline, with(recipe, layout)), expected, describe(layout));
    }
  }
}

TEST(Pipeline, RecomputeAndPrecisionsChangeNothingOfThat) {
  for (const Recompute recompute : {Recompute::attention, Recompute::full}) {
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      Recipe recipe = layout_recipe();
      recipe.train.recompute = recompute;
      recipe.train.precision = precision;
      recipe.train.loss_scale_start = 4294967296.0;  // the first steps overflow and are skipped
      const LayoutRun expected = run_layout(1, recipe, "one");
      for (const Layout& layout : {kLayouts[1], kLayouts[3]})
        expect_equal(run_layout(layout.pipeline, with(recipe, layout)), expected, describe(layout));
    }
  }
}

TEST(Pipeline, WithDataParallelEqualsDataParallelBitForBit) {
  for (const int64_t zero : {0, 1}) {
    Recipe recipe = layout_recipe();
    recipe.parallel.zero_stage = zero;
    for (const int data : {2, 3}) {
      const LayoutRun expected = run_layout(data, recipe, "replicas");
      for (const Layout& layout : {kLayouts[0], kLayouts[1]})
        expect_equal(run_layout(data * layout.pipeline, with(recipe, layout)), expected, describe(layout));
    }
  }
}

TEST(Pipeline, WithTensorParallelEqualsTensorParallelBitForBit) {
  for (const ModelForm form : {ModelForm::gpt2, ModelForm::llama}) {
    Recipe recipe = layout_recipe(form);
    recipe.model.hidden_dropout = 0.1;
    recipe.parallel.tensor = 2;
    recipe.parallel.sequence_parallel = form == ModelForm::llama;
    const LayoutRun expected = run_layout(2, recipe, "tensor");
    for (const Layout& layout : {kLayouts[0], kLayouts[1]})
      expect_equal(run_layout(2 * layout.pipeline, with(recipe, layout)), expected, describe(layout));
  }
}

// Fewer micro-batches than stages, down to one, and ranks without any.
TEST(Pipeline, ShortStepsGoThroughTheSameStages) {
  Recipe recipe = layout_recipe();
  recipe.train.steps = 0;
  recipe.train.samples = 30;  // 11, 11, 8
  recipe.train.batch_ramp_start = 1;
  recipe.train.batch_ramp_increment = 5;
  recipe.train.batch_ramp_samples = 12;
  recipe.schedule.warmup_steps = 0;
  recipe.resolve();
  for (const int data : {1, 2}) {
    const LayoutRun expected = run_layout(data, recipe, "short");
    for (const Layout& layout : {kLayouts[1], kLayouts[4]})
      expect_equal(run_layout(data * layout.pipeline, with(recipe, layout)), expected, describe(layout));
  }
}

TEST(Pipeline, WhatDoesNotFitIsRefusedBeforeTraining) {
  try {
    run_layout(3, with(layout_recipe(), {2, 1, "even"}));
    FAIL() << "accepted 3 ranks for 2 stages";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("3 ranks cannot be cut into parallel.pipeline = 2"));
  }
  EXPECT_THROW(with(layout_recipe(), {5, 1, "even"}), InputError);  // more stages than layers
  EXPECT_THROW(with(layout_recipe(), {2, 1, "1,2"}), InputError);   // a layer too few
  EXPECT_THROW(with(layout_recipe(), {1, 2, "even"}), InputError);
}

}  // namespace
}  // namespace megalith
