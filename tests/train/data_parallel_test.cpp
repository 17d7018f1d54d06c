// Data parallel and ZeRO: any number of ranks trains the same model as one process.
#include <gtest/gtest.h>

#include <cmath>

#include "megalith/base/error.h"
#include "megalith/comm/agreement.h"
#include "megalith/comm/thread_communicator.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/train/trainer.h"
#include "tests/train/small_run.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

Recipe parallel_recipe() {
  Recipe recipe = small_recipe();
  recipe.train.micro_batch = 1;
  recipe.train.global_batch = 6;
  recipe.train.threads = 1;
  recipe.model.hidden_dropout = recipe.model.attention_dropout = 0.1;
  return recipe;
}

fs::path train_on(int ranks, const Recipe& recipe, const std::string& name,
                  const std::string& resume = "auto") {
  const fs::path run = scratch(name);
  run_ranks(ranks, [&](Communicator& communicator) { train(recipe, into(run, resume), communicator); });
  return run;
}

std::map<std::string, std::vector<float>> tensors(const fs::path& run) {
  const CheckpointReader reader(*find_checkpoint(run));
  std::map<std::string, std::vector<float>> all;
  for (const std::string& name : reader.tensor_names()) {
    const auto values = reader.tensor(name).span<float>();
    all[name].assign(values.begin(), values.end());
  }
  return all;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << "step " << i + 1;
}

TEST(DataParallel, TrainsAsOneProcessDoes) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    Recipe recipe = parallel_recipe();
    recipe.train.precision = precision;
    const auto expected = losses(train_on(1, recipe, "one"));
    for (const int ranks : {2, 3, 4}) {  // 6 micro-batches: 3 and 3; 2, 2, 2; 2, 2, 1, 1
      for (const int64_t stage : {0, 1}) {
        recipe.parallel.zero_stage = stage;
        // Only the order of sums over micro-batches differs; bf16 weights can round to a neighbour.
        expect_near(losses(train_on(ranks, recipe, "many")), expected,
                    precision == Precision::fp32 ? 1e-5 : 5e-3);
      }
    }
  }
}

TEST(DataParallel, ZeroStagesAgreeBitForBit) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Recipe recipe = parallel_recipe();
    recipe.train.precision = precision;
    for (const int ranks : {2, 3}) {
      recipe.parallel.zero_stage = 0;
      const fs::path zero = train_on(ranks, recipe, "zero-0");
      recipe.parallel.zero_stage = 1;
      const fs::path one = train_on(ranks, recipe, "zero-1");
      EXPECT_EQ(log_lines(zero), log_lines(one));
      EXPECT_EQ(tensors(zero), tensors(one));
    }
  }
}

TEST(DataParallel, ACheckpointOfAnyNumberOfRanksLoadsIntoAnyOther) {
  Recipe recipe = parallel_recipe();
  const auto expected = losses(train_on(1, recipe, "unbroken"));
  Recipe half = recipe;
  half.checkpoint.every = half.checkpoint.keep_every = 6;
  for (const auto& [saved, saved_stage, loaded, loaded_stage] :
       {std::tuple{1, 0, 3, 1}, std::tuple{3, 1, 1, 0}, std::tuple{2, 1, 4, 1}, std::tuple{4, 0, 2, 1}}) {
    half.parallel.zero_stage = saved_stage;
    const fs::path first = train_on(saved, half, "first");
    recipe.parallel.zero_stage = loaded_stage;
    const fs::path second =
        train_on(loaded, recipe, "second", (first / "checkpoints" / checkpoint_name(6)).string());
    const auto rest = losses(second);
    expect_near(rest, {expected.begin() + 6, expected.end()}, 1e-5);
  }
  // The same layout goes on bit for bit.
  half.parallel.zero_stage = recipe.parallel.zero_stage = 1;
  const fs::path first = train_on(3, half, "first");
  const fs::path second =
      train_on(3, recipe, "second", (first / "checkpoints" / checkpoint_name(6)).string());
  EXPECT_EQ(tensors(first), tensors(second));
}

TEST(DataParallel, RanksWithDifferentRecipesAreRefusedOnceAndNamed) {
  Recipe recipe = parallel_recipe();
  const fs::path run = scratch("different");
  std::vector<std::string> messages(2);
  run_ranks(2, [&](Communicator& communicator) {
    Recipe own = recipe;
    if (communicator.rank() == 1) own.optimizer.learning_rate *= 2;
    try {
      train(own, into(run), communicator);
    } catch (const AgreedError& error) {
      messages[static_cast<size_t>(communicator.rank())] = error.what();
    }
  });
  for (const std::string& message : messages)
    EXPECT_EQ(message, "rank 1 has another recipe or tokenizer than rank 0");
}

TEST(DataParallel, AMissingDatasetIsOneErrorBeforeTraining) {
  Recipe recipe = parallel_recipe();
  recipe.data.train = {{"/nonexistent/data", 1.0}};
  run_ranks(2, [&](Communicator& communicator) {
    EXPECT_THROW(train(recipe, into(scratch("missing") / std::to_string(communicator.rank())), communicator),
                 AgreedError);
  });
}

TEST(DataParallel, AllRanksSkipAnOverflowTogether) {
  Recipe recipe = parallel_recipe();
  recipe.train.precision = Precision::fp16;
  recipe.train.loss_scale_start = 4294967296.0;
  recipe.train.steps = 30;
  const auto alone = log_lines(train_on(2, recipe, "zero-0"));
  recipe.parallel.zero_stage = 1;
  const auto sharded = log_lines(train_on(2, recipe, "zero-1"));
  EXPECT_EQ(alone, sharded);
  EXPECT_NE(alone.begin()->second.find("\"skipped\":true"), std::string::npos);
}

TEST(DataParallel, LambRefusesToBeCut) {
  Recipe recipe = parallel_recipe();
  recipe.optimizer.type = OptimizerType::lamb;
  recipe.parallel.zero_stage = 1;
  EXPECT_THROW(recipe.resolve(), InputError);
}

}  // namespace
}  // namespace megalith
