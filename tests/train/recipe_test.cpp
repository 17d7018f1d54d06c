#include "megalith/train/recipe.h"

#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/train/recipe_changes.h"

namespace megalith {
namespace {

Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return Recipe::from_source(ConfigSource::from_text(text, "recipe.toml", overrides), "/data/here");
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Recipe, AShortOneWorksAndPathsAreRelativeToIt) {
  const Recipe recipe =
      read("[data]\ntokenizer = \"t.json\"\ntrain = \"../x/corpus\"\n[train]\nsteps = 10\n");
  EXPECT_EQ(recipe.data.tokenizer, "/data/here/t.json");
  EXPECT_EQ(recipe.data.train, (std::vector<WeightedPath>{{"/data/x/corpus", 1.0}}));
  EXPECT_EQ(recipe.data.sequence_length, recipe.model.max_positions);
  EXPECT_EQ(recipe.train.global_batch, recipe.train.micro_batch);
  EXPECT_DOUBLE_EQ(recipe.schedule.min_learning_rate, 0.1 * recipe.optimizer.learning_rate);
}

TEST(Recipe, ChangesThatMatterAreNamed) {
  Recipe before = read("[train]\nsteps = 10\n"), after = before;
  EXPECT_TRUE(recipe_changes(before.to_toml(), after.to_toml()).empty());
  after.train.seed = 7;
  after.train.threads = 9;  // changes no number
  after.log.every = 3;
  after.optimizer.beta2 = 0.99;
  EXPECT_EQ(recipe_changes(before.to_toml(), after.to_toml()),
            (std::vector<std::string>{"optimizer.beta2: 0.95 -> 0.99", "train.seed: 1234 -> 7"}));
}

TEST(Recipe, TheFormChoosesDefaultsThatKeysOverride) {
  const Recipe recipe = read("[model]\nform = \"llama\"\nbias = true\n[train]\nsteps = 1\n");
  EXPECT_EQ(recipe.model.positions, PositionKind::rope);
  EXPECT_EQ(recipe.model.norm, NormKind::rms);
  EXPECT_EQ(recipe.model.activation, Activation::swiglu);
  EXPECT_TRUE(recipe.model.bias);
  EXPECT_EQ(read("[train]\nsteps = 1\n", {"model.form=llama"}).model.norm, NormKind::rms);
}

TEST(Recipe, TheResolvedOneReadsBackEqual) {
  Recipe recipe = read(
      "[model]\nform = \"llama\"\nvocab_size = 100\n[data]\ntrain = [{ path = \"/a\", weight = 0.3 }]\n"
      "[train]\ntokens = 1e6\nprecision = \"fp16\"\nrecompute = \"attention\"\n[optimizer]\ntype = \"lamb\"\n"
      "[schedule]\ntype = \"warmup_stable_decay\"\nwarmup_tokens = 1000\n");
  EXPECT_EQ(read(recipe.to_toml()), recipe);
}

TEST(Recipe, ContradictionsAreRefusedByName) {
  EXPECT_EQ(error_of(""), "the run has no length: set train.steps, train.samples or train.tokens");
  EXPECT_EQ(error_of("[train]\nsteps = 1\ntokens = 5\n"),
            "give one of train.steps, train.samples and train.tokens, not 2");
  EXPECT_EQ(error_of("[train]\nsteps = 1\n[schedule]\nwarmup_tokens = 5\n"),
            "schedule.warmup_* must be given in steps, as the run's length is");
  EXPECT_EQ(error_of("[model]\nmax_positions = 8\n[data]\nsequence_length = 9\n[train]\nsteps = 1\n"),
            "data.sequence_length = 9 exceeds model.max_positions = 8");
  EXPECT_EQ(error_of("[train]\nsteps = 1\n[parallel]\ntensor = 0\n"),
            "recipe.toml:4: parallel.tensor = 0 is out of range; allowed is 1 to 4096");
  EXPECT_EQ(error_of("[train]\nsteps = 1\n[parallel]\nsequence_parallel = true\n"),
            "parallel.sequence_parallel splits over tensor ranks: it needs parallel.tensor above 1");
  EXPECT_EQ(error_of("[model]\nhead = \"none\"\n[train]\nsteps = 1\n"),
            "model.head = \"none\" predicts nothing that training could compare with text");
  for (const char* model : {"causal = false", "form = \"bert\"\ncausal = true"}) {
    EXPECT_NE(
        error_of(std::string("[model]\n") + model + "\n[train]\nsteps = 1\n").find(" does not go with "),
        std::string::npos)
        << model;
  }
  EXPECT_NE(
      error_of("[train]\nsteps = 1\n[optimizer]\ntype = \"lamb\"\n[parallel]\ntensor = 2\n").find("lamb"),
      std::string::npos);
  EXPECT_NE(
      error_of("[train]\nsteps = 1\nglobal_batch = 10\nbatch_ramp_start = 3\nbatch_ramp_increment = 2\n"),
      "no error");
  EXPECT_EQ(error_of("[train]\nsteps = 1\nmicro_batch = 0\n"),
            "recipe.toml:3: train.micro_batch = 0 is out of range; allowed is 1 to 1048576");
}

}  // namespace
}  // namespace megalith
