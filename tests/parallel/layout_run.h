// Runs of a tiny model in any layout on threads, and everything that such a run gives.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "megalith/comm/thread_communicator.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/train/trainer.h"
#include "tests/train/small_run.h"

namespace megalith {

/// A tiny recipe whose steps have several micro-batches, the last one smaller.
inline Recipe layout_recipe(ModelForm form = ModelForm::gpt2) {
  Recipe recipe = small_recipe();
  if (form == ModelForm::llama) {
    recipe.model = ModelConfig::defaults(ModelForm::llama);
    recipe.model.vocab_size = 23;
    recipe.model.hidden_size = 32;
    recipe.model.num_heads = 4;
    recipe.model.num_kv_heads = 2;
    recipe.model.ffn_hidden_size = 48;
    recipe.model.max_positions = 16;
    recipe.model.vocab_multiple = 8;
  }
  recipe.model.num_layers = 4;
  recipe.train.steps = 20;
  recipe.train.micro_batch = 2;
  recipe.train.global_batch = 11;
  recipe.train.threads = 1;
  recipe.data.split = "80,20,0";
  recipe.log.validate_every = 10;
  recipe.log.validation_samples = 7;
  recipe.resolve();
  return recipe;
}

struct LayoutRun {
  /// Lines of losses, gradient norms and learning rates, without times.
  std::map<int64_t, std::string> lines;
  std::vector<std::string> validations;
  /// Weights and moments of the last checkpoint.
  std::map<std::string, std::vector<float>> tensors;
};

inline LayoutRun read_run(const std::filesystem::path& run) {
  LayoutRun result;
  result.lines = log_lines(run);
  std::istringstream text(read_file(run / "log.jsonl"));
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("validation_loss")) result.validations.push_back(json["validation_loss"].dump());
  }
  const CheckpointReader reader(*find_checkpoint(run));
  for (const std::string& name : reader.tensor_names()) {
    const auto values = reader.tensor(name).span<float>();
    result.tensors[name].assign(values.begin(), values.end());
  }
  return result;
}

/// Trains `recipe` on `ranks` threads.
inline LayoutRun run_layout(int ranks, const Recipe& recipe, const std::string& name = "layout") {
  const std::filesystem::path run = scratch(name);
  std::atomic<int> started{0};
  run_ranks(ranks, [&](Communicator& communicator) {
    if (communicator.size() == ranks) ++started;
    train(recipe, into(run), communicator);
  });
  EXPECT_EQ(started, ranks);
  return read_run(run);
}

inline void expect_equal(const LayoutRun& run, const LayoutRun& expected, const std::string& what) {
  EXPECT_EQ(run.lines, expected.lines) << what;
  EXPECT_EQ(run.validations, expected.validations) << what;
  EXPECT_FALSE(expected.validations.empty());
  ASSERT_EQ(run.tensors.size(), expected.tensors.size()) << what;
  for (const auto& [name, values] : expected.tensors) {
    const auto found = run.tensors.find(name);
    ASSERT_NE(found, run.tensors.end()) << what << " lacks " << name;
    EXPECT_TRUE(found->second == values) << what << ": " << name << " differs";
  }
}

}  // namespace megalith
