// A checkpoint of any layout of ranks loads into any other.
#include "megalith/base/error.h"
#include "megalith/comm/agreement.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/formats/consolidate_checkpoint.h"
#include "megalith/model/model_files.h"
#include "megalith/train/checkpoint.h"
#include "tests/parallel/layouts.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {},
      {.tensor = 2},
      {.tensor = 4, .sequence_parallel = true},
      {.tensor = 2, .pipeline = 2, .sequence_parallel = true},
      {.data = 3, .zero_stage = 3},
      {.tensor = 2, .data = 2, .pipeline = 2, .zero_stage = 1},
      {.tensor = 2, .data = 2, .zero_stage = 3},
      {.tensor = 3, .sequence_parallel = true},
      {.tensor = 2, .data = 3, .sequence_parallel = true, .zero_stage = 2},
  };
  return all;
}

Recipe reshard_recipe(ModelForm form) {
  Recipe recipe = layout_recipe(form);
  // Grouped heads, a gated fused projection, and a vocabulary that no number of ranks divides.
  if (form == ModelForm::llama) recipe.model.num_kv_heads = 12;
  return recipe;
}

// What `rank` does to a model in a layout: begin from `from` (empty: the recipe's seed), train `steps`, write
// into `to` (empty: nothing). Returns the losses.
std::vector<double> run_layout(const Recipe& base, const Layout& layout, const fs::path& from, int steps,
                               const fs::path& to) {
  const Recipe recipe = with_layout(base, layout);
  std::vector<double> losses;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    ASSERT_EQ(world.size(), layout.ranks());
    ParallelGroups groups(world, layout.pipeline, layout.tensor);
    TrainingArenas arenas;
    const ExecContext exec{arenas.workspace, 1};
    TrainingStep step(recipe, arenas, exec, groups);
    TrainingState state;
    if (from.empty()) {
      step.initialize();
    } else {
      const CheckpointReader reader(*find_checkpoint(from));
      state = load_checkpoint(reader, step.parameters(), step.optimizer());
      step.refresh_weights();
    }
    const BatchSources sources = sources_of(recipe);
    for (int i = 0; i < steps; ++i) {
      const StepResult result = step.run(*sources.train, state, recipe.train.global_batch, 3e-3, 1);
      state.step += 1;
      state.updates += 1;
      state.consumed_samples += recipe.train.global_batch;
      if (world.rank() == 0) losses.push_back(result.loss);
    }
    if (!to.empty()) save_checkpoint(to, recipe, step.parameters(), step.optimizer(), state, "", {}, groups);
  });
  return losses;
}

Tensors tensors(const fs::path& run) {
  const CheckpointReader reader(*find_checkpoint(run));
  reader.verify();
  Tensors all;
  for (const std::string& name : reader.tensor_names()) {
    const auto values = reader.tensor(name).span<float>();
    all[name].assign(values.begin(), values.end());
  }
  return all;
}

class Reshard : public ::testing::TestWithParam<ModelForm> {};

TEST_P(Reshard, EveryLayoutReadsEveryOther) {
  const Recipe recipe = reshard_recipe(GetParam());
  const std::vector<double> unbroken = run_layout(recipe, {}, {}, 6, {});
  // All pairs of layouts for one form; the other has nothing else to cut.
  const size_t saved_layouts = GetParam() == ModelForm::llama ? layouts().size() : 3;
  for (size_t i = 0; i < saved_layouts; ++i) {
    const Layout& saved = layouts()[layouts().size() - 1 - i];
    const fs::path first = scratch("reshard-saved");
    run_layout(recipe, saved, {}, 4, first);
    const Tensors expected = tensors(first);
    for (const Layout& loaded : layouts()) {
      const std::string what = to_string(saved) + " into " + to_string(loaded);
      // Loaded and written again at once, weights and moments are the same bits.
      const fs::path second = scratch("reshard-loaded");
      run_layout(recipe, loaded, first, 0, second);
      EXPECT_EQ(tensors(second), expected) << what;
      const std::vector<double> rest = run_layout(recipe, loaded, first, 2, {});
      EXPECT_LE(difference(rest, {unbroken.begin() + 4, unbroken.end()}), 1e-5) << what;
    }
  }
}

TEST_P(Reshard, TheSameLayoutGoesOnBitForBit) {
  const Recipe recipe = reshard_recipe(GetParam());
  for (const Layout& layout : layouts()) {
    const fs::path half = scratch("reshard-half"), resumed = scratch("reshard-resumed"),
                   unbroken = scratch("reshard-unbroken");
    const std::vector<double> losses = run_layout(recipe, layout, {}, 6, unbroken);
    run_layout(recipe, layout, {}, 3, half);
    EXPECT_EQ(run_layout(recipe, layout, half, 3, resumed),
              std::vector<double>(losses.begin() + 3, losses.end()))
        << to_string(layout);
    EXPECT_EQ(tensors(resumed), tensors(unbroken)) << to_string(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Reshard, ::testing::Values(ModelForm::gpt2, ModelForm::llama),
                         [](const auto& form) { return form.param == ModelForm::gpt2 ? "Gpt" : "Llama"; });

// Every rank writes its own slices and nothing twice: together the shards are as large as the tensors.
TEST(ShardedCheckpoint, HoldsEveryElementOnce) {
  const Recipe recipe = reshard_recipe(ModelForm::llama);
  for (const Layout& layout : layouts()) {
    const fs::path run = scratch("once");
    run_layout(recipe, layout, {}, 1, run);
    const fs::path checkpoint = *find_checkpoint(run);
    const CheckpointReader reader(checkpoint);
    int64_t elements = 0;
    for (const std::string& name : reader.tensor_names()) elements += reader.shape(name).elements();
    int64_t stored = 0;
    std::map<std::string, int64_t> by_file;
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      if (entry.path().extension() != ".safetensors") continue;
      const SafetensorsFile file(entry.path());
      for (const SafetensorsEntry& tensor : file.entries()) {
        stored += tensor.elements();
        by_file[entry.path().filename().string()] += tensor.elements();
      }
    }
    EXPECT_EQ(stored, elements) << to_string(layout);
    EXPECT_EQ(by_file.size(), static_cast<size_t>(2 * layout.ranks()));
    // No rank writes much more than its share (copies are written by the first).
    for (const auto& [name, size] : by_file) {
      EXPECT_LE(size, elements * 2 / 3 / layout.ranks() + elements / 10) << name << ", " << to_string(layout);
    }
  }
}

TEST(ShardedCheckpoint, OneProcessReadsItAsAModel) {
  const Recipe recipe = reshard_recipe(ModelForm::llama);
  const fs::path run = scratch("model");
  run_layout(recipe, {.tensor = 2, .data = 3, .sequence_parallel = true, .zero_stage = 1}, {}, 2, run);
  Arena workspace("workspace");
  const ExecContext exec{workspace, 1};
  const LoadedModel model(describe_model(run), DType::f32, exec);
  const Tensors expected = tensors(run);
  for (const ParameterSlot& slot : model.parameters().slots()) {
    const auto values = slot.parameter->value.slice(0, slot.parameter->shape[0]).span<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), expected.at(slot.parameter->name))
        << slot.parameter->name;
  }
}

TEST(ShardedCheckpoint, ConsolidatesIntoTheFilesOfOneProcess) {
  const Recipe recipe = reshard_recipe(ModelForm::llama);
  const fs::path run = scratch("consolidate"), alone = scratch("consolidate-alone"),
                 joined = scratch("consolidated") / "checkpoints" / checkpoint_name(2);
  run_layout(recipe, {.tensor = 2, .data = 3, .sequence_parallel = true, .zero_stage = 1}, {}, 2, run);
  const CheckpointReader reader(*find_checkpoint(run));
  consolidate_checkpoint(reader, joined);
  EXPECT_EQ(tensors(joined), tensors(run));
  EXPECT_EQ(CheckpointReader(joined).state(), reader.state());
  EXPECT_EQ(CheckpointReader(joined).step(), 2);
  // The same tensors in the same files as one process writes after loading it.
  const auto contents = [](const fs::path& path) {
    std::map<std::string, std::vector<int64_t>> shapes;
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.entries()) shapes[entry.name] = entry.shape;
    return shapes;
  };
  run_layout(recipe, {}, run, 0, alone);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(contents(joined / file), contents(*find_checkpoint(alone) / file));
  }
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(joined)) ++files;
  EXPECT_EQ(files, 5u) << "model, optimizer, model.toml, recipe.toml, manifest";
  // And it goes on as the sharded one does.
  EXPECT_EQ(run_layout(recipe, {}, joined.parent_path().parent_path(), 2, {}),
            run_layout(recipe, {}, run, 2, {}));
}

TEST(ShardedCheckpoint, MutatedManifestsGiveInputErrorsOnly) {
  const fs::path run = scratch("sharded-fuzz");
  Recipe recipe = reshard_recipe(ModelForm::llama);
  recipe.model.num_layers = 1;
  run_layout(recipe, {.tensor = 2, .data = 2, .zero_stage = 1}, {}, 1, run);
  const fs::path checkpoint = *find_checkpoint(run);
  const std::string good = read_file(checkpoint / "manifest.json");
  const size_t slices = good.find("\"axis\"");
  ASSERT_NE(slices, std::string::npos);
  RandomSequence random(RandomStream(5, RandomUse::shuffle, 2));
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text = good;
    for (uint64_t edits = 1 + random.below(3); edits > 0; --edits) {
      const size_t at = round % 2 == 0 ? random.below(text.size()) : slices + random.below(120);
      if (random.below(2) == 0) {
        text[at] = "0123456789[],-\""[random.below(15)];
      } else {
        text.erase(at, 1 + random.below(5));
      }
    }
    OutputFile file(checkpoint / "manifest.json");
    file.write(text);
    file.close();
    try {
      const CheckpointReader reader(checkpoint);
      reader.verify();
      for (const std::string& name : reader.tensor_names()) reader.load(name);
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
}

TEST(ShardedCheckpoint, AMissingSliceIsNamed) {
  const fs::path run = scratch("sharded-missing");
  const Recipe recipe = reshard_recipe(ModelForm::gpt2);
  run_layout(recipe, {.tensor = 2}, {}, 1, run);
  const fs::path checkpoint = *find_checkpoint(run);
  std::istringstream manifest(read_file(checkpoint / "manifest.json"));
  std::string cut;
  for (std::string line; std::getline(manifest, line);) {
    const bool drop = line.find("\"layers.0.attention.output.weight\"") != std::string::npos &&
                      line.find("00002-of-00002") != std::string::npos;
    if (!drop) cut += line + "\n";
  }
  write_file_atomic(checkpoint / "manifest.json", cut);
  try {
    const CheckpointReader reader(checkpoint);
    FAIL() << "accepted half a tensor";
  } catch (const InputError& error) {
    EXPECT_NE(
        std::string(error.what()).find("the slices of tensor layers.0.attention.output.weight end at 24"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace megalith
