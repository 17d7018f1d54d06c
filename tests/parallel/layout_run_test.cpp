// Whole runs in layouts of ranks: log, validation, overflow, resuming, refusals.
#include "megalith/base/error.h"
#include "megalith/comm/agreement.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/train/trainer.h"
#include "tests/parallel/layouts.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

Recipe run_recipe() {
  Recipe recipe = layout_recipe(ModelForm::gpt2);
  recipe.train.steps = 12;
  recipe.data.split = "8,2,0";
  recipe.log.validate_every = 6;
  return recipe;
}

fs::path run_in(const Layout& layout, const Recipe& base, const std::string& name,
                const std::string& resume = "auto") {
  const Recipe recipe = with_layout(base, layout);
  const fs::path run = scratch(name);
  run_ranks(layout.ranks(), [&](Communicator& world) { train(recipe, into(run, resume), world); });
  return run;
}

std::vector<double> logged(const fs::path& run, const std::string& key) {
  std::vector<double> values;
  std::istringstream text(read_file(run / "log.jsonl"));
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains(key)) values.push_back(json[key].get<double>());
  }
  return values;
}

TEST(LayoutRuns, LogTheSameAsOneProcess) {
  const Recipe recipe = run_recipe();
  const fs::path one = run_in({}, recipe, "one");
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.tensor = 4, .sequence_parallel = true},
                               Layout{.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 1}}) {
    const fs::path many = run_in(layout, recipe, "many");
    for (const char* key : {"loss", "gradient_norm", "validation_loss"}) {
      ASSERT_FALSE(logged(one, key).empty());
      EXPECT_LE(difference(logged(many, key), logged(one, key)), 1e-5) << key << ", " << to_string(layout);
    }
    for (const char* key : {"learning_rate", "consumed_samples"})
      EXPECT_EQ(logged(many, key), logged(one, key));
  }
}

TEST(LayoutRuns, TheLogSaysWhatEachGroupExchanged) {
  const fs::path run = run_in({.tensor = 2, .data = 3}, run_recipe(), "groups");
  std::istringstream text(read_file(run / "log.jsonl"));
  bool found = false;
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.value("kind", "") != "profile") continue;
    found = true;
    std::map<std::string, int> ranks;
    for (const auto& group : json["communication"]) {
      ranks[group["group"].get<std::string>()] = group["ranks"].get<int>();
      EXPECT_GT(group["calls"].get<int64_t>(), 0);
      EXPECT_GT(group["bytes"].get<int64_t>(), 0);
    }
    EXPECT_EQ(ranks.at("tensor parallel"), 2);
    EXPECT_EQ(ranks.at("data parallel"), 3);
    EXPECT_EQ(ranks.size(), 3u);
  }
  EXPECT_TRUE(found);
}

// The loss scale falls from its start until no gradient of any rank overflows; a rank that saw no overflow of
// its own must skip as well.
TEST(LayoutRuns, AllRanksSkipAnOverflowTogether) {
  Recipe recipe = run_recipe();
  recipe.train.precision = Precision::fp16;
  recipe.train.loss_scale_start = 4294967296.0;
  recipe.train.steps = 25;
  const fs::path one = run_in({}, recipe, "one");
  const std::vector<double> scales = logged(one, "loss_scale");
  ASSERT_LT(scales.back(), scales.front());
  for (const Layout& layout :
       {Layout{.tensor = 2}, Layout{.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 1}}) {
    const fs::path many = run_in(layout, recipe, "many");
    EXPECT_EQ(logged(many, "loss_scale"), scales) << to_string(layout);
    EXPECT_LE(difference(logged(many, "loss"), logged(one, "loss")), 1e-3) << to_string(layout);
  }
}

TEST(LayoutRuns, GoOnInAnotherLayout) {
  const Recipe recipe = run_recipe();
  const std::vector<double> unbroken = logged(run_in({}, recipe, "unbroken"), "loss");
  Recipe half = recipe;
  half.checkpoint.every = half.checkpoint.keep_every = 6;
  const fs::path first =
      run_in({.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 1}, half, "first");
  for (const Layout& layout : {Layout{}, Layout{.tensor = 3}, Layout{.data = 4, .zero_stage = 1}}) {
    const fs::path second =
        run_in(layout, recipe, "second", (first / "checkpoints" / checkpoint_name(6)).string());
    EXPECT_LE(difference(logged(second, "loss"), {unbroken.begin() + 6, unbroken.end()}), 1e-5)
        << to_string(layout);
  }
}

TEST(LayoutRuns, WhatCannotWorkIsRefusedOnceBeforeAnythingIsMade) {
  struct Refusal {
    int ranks;
    int64_t tensor;
    bool sequence_parallel;
    int64_t sequence_length;
    std::string reason;
  };
  for (const Refusal& refusal : {Refusal{3, 2, false, 24, "3 ranks cannot be cut"},
                                 Refusal{5, 5, false, 24, "possible are 1, 2, 3, 4, 6"},
                                 Refusal{2, 2, true, 23, "data.sequence_length = 23"}}) {
    Recipe recipe = run_recipe();
    recipe.parallel.tensor = refusal.tensor;
    recipe.parallel.sequence_parallel = refusal.sequence_parallel;
    recipe.data.sequence_length = refusal.sequence_length;
    const fs::path run = scratch("refused") / "run";
    std::vector<std::string> messages(static_cast<size_t>(refusal.ranks));
    run_ranks(refusal.ranks, [&](Communicator& world) {
      try {
        train(recipe, into(run), world);
      } catch (const AgreedError& error) {
        EXPECT_TRUE(error.wrong_input());
        messages[static_cast<size_t>(world.rank())] = error.what();
      }
    });
    for (const std::string& message : messages) {
      EXPECT_EQ(message, messages[0]);
      EXPECT_NE(message.find(refusal.reason), std::string::npos) << message;
    }
    EXPECT_FALSE(fs::exists(run));
  }
}

}  // namespace
}  // namespace megalith
