#include "megalith/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "megalith/train/loss_scaler.h"
#include "megalith/train/run_plan.h"

namespace megalith {
namespace {

Recipe recipe_of_steps(int64_t steps) {
  Recipe recipe;
  recipe.train.steps = steps;
  recipe.train.global_batch = 8;
  recipe.data.sequence_length = 16;
  recipe.optimizer.learning_rate = 1.0;
  recipe.schedule.min_learning_rate = 0.1;
  return recipe;
}

TEST(Schedule, WarmUpIsLinearAndCosineEndsAtTheMinimum) {
  Recipe recipe = recipe_of_steps(110);
  recipe.schedule.warmup_steps = 10;
  const LearningRateSchedule schedule(recipe);
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.1);
}

TEST(Schedule, OtherShapes) {
  Recipe recipe = recipe_of_steps(100);
  recipe.schedule.type = ScheduleType::constant;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(recipe).at(77), 1.0);
  recipe.schedule.type = ScheduleType::linear;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(recipe).at(50), 0.55);
  recipe.schedule.type = ScheduleType::inverse_sqrt;
  recipe.schedule.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(recipe).at(16), 0.5);
  recipe.schedule.warmup_steps = 0;
  recipe.schedule.type = ScheduleType::warmup_stable_decay;
  recipe.schedule.decay_steps = 20;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(recipe).at(80), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateSchedule(recipe).at(90), 0.55);
  EXPECT_NEAR(LearningRateSchedule(recipe).at(100), 0.1, 1e-15);
}

// MT-NLG 530B: 5e-5, warm-up over 1 B tokens, cosine to a tenth over 340 B, stopped at 270 B; batch 32 to
// 1920 in steps of 32 over 12 B.
Recipe mt_nlg() {
  Recipe recipe;
  recipe.train.tokens = 270'000'000'000;
  recipe.train.global_batch = 1920;
  recipe.train.batch_ramp_start = 32;
  recipe.train.batch_ramp_increment = 32;
  recipe.train.batch_ramp_tokens = 12'000'000'000;
  recipe.data.sequence_length = 2048;
  recipe.model.max_positions = 2048;
  recipe.optimizer.learning_rate = 5e-5;
  recipe.schedule.min_learning_rate = 5e-6;
  recipe.schedule.warmup_tokens = 1'000'000'000;
  recipe.schedule.decay_tokens = 340'000'000'000;
  return recipe;
}

TEST(Schedule, IsMtNlgs) {
  const LearningRateSchedule schedule(mt_nlg());
  EXPECT_DOUBLE_EQ(schedule.at(5e8), 2.5e-5);
  EXPECT_DOUBLE_EQ(schedule.at(1e9), 5e-5);
  EXPECT_NEAR(schedule.at(270e9), 9.6e-6, 0.05e-6);
  EXPECT_DOUBLE_EQ(schedule.at(340e9), 5e-6);
}

TEST(BatchRamp, IsMtNlgs) {
  const BatchRamp ramp(mt_nlg());
  EXPECT_EQ(ramp.at(0), 32);
  EXPECT_EQ(ramp.at(99311), 32);  // 5,859,375 samples in 59 stages of 99,311.4
  EXPECT_EQ(ramp.at(99312), 64);
  EXPECT_EQ(ramp.at(5859376), 1920);
  int64_t consumed = 0, iterations = 0, before = 32;
  while (ramp.at(consumed) < 1920) {
    const int64_t batch = ramp.at(consumed);
    ASSERT_TRUE(batch == before || batch == before + 32)
        << "the batch jumps from " << before << " to " << batch;
    before = batch;
    consumed += batch;
    ++iterations;
  }
  // A stage of 99,311.4 samples takes 99,311.4 / batch iterations: 14,471.9 in all; whole batches overshoot
  // each stage by less than one iteration, of which the next stage is shorter.
  EXPECT_GE(iterations, 14472);
  EXPECT_LE(iterations, 14472 + 5);
}

TEST(BatchRamp, StepsOfARunAreCountedWithTheRamp) {
  Recipe recipe = recipe_of_steps(0);
  recipe.train.steps = 0;
  recipe.train.samples = 100;
  recipe.train.global_batch = 8;
  EXPECT_EQ(count_steps(recipe), 13);  // 12 of 8, one of 4
  recipe.train.batch_ramp_start = 2;
  recipe.train.batch_ramp_increment = 2;
  recipe.train.batch_ramp_samples = 30;
  const BatchRamp ramp(recipe);
  int64_t steps = 0;
  for (int64_t consumed = 0; consumed < 100; ++steps)
    consumed += std::min<int64_t>(ramp.at(consumed), 100 - consumed);
  EXPECT_EQ(count_steps(recipe), steps);
}

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterCleanSteps) {
  LossScaler scaler({1024, 1, 3, 2});
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 512);
  scaler.step_succeeded();
  scaler.step_succeeded();
  EXPECT_EQ(scaler.scale(), 512);
  scaler.step_succeeded();
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.step_succeeded();
  scaler.step_succeeded();
  EXPECT_TRUE(scaler.step_overflowed());  // resets the count
  scaler.step_succeeded();
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(LossScaler, GivesUpAtTheFloorAfterItsPatience) {
  LossScaler scaler({4, 1, 1000, 3});
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_FALSE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 1);
}

}  // namespace
}  // namespace megalith
