// Every layout of ranks trains the model of one process.
#include <fstream>
#include <numeric>

#include "megalith/base/error.h"
#include "tests/parallel/layouts.h"

namespace megalith {
namespace {

// A line a layout, for the record.
void write_table(const std::string& title, const std::vector<std::pair<Layout, LayoutOutcome>>& outcomes,
                 const LayoutOutcome& one) {
  const char* path = "layouts.md";
  static bool begun = false;
  std::ofstream out(path, begun ? std::ios::app : std::ios::trunc);
  if (!begun) out << "# Layouts against one process, 20 steps\n";
  begun = true;
  out << "\n## " << title
      << "\n\n| layout | loss difference | gradient difference | weight difference | bytes a rank | messages "
         "a "
         "step | payload a step |\n|---|---|---|---|---|---|---|\n";
  for (const auto& [layout, outcome] : outcomes) {
    out << fmt::format("| {} | {:.1e} | {:.1e} | {:.1e} | {} | {} | {} |\n", to_string(layout),
                       difference(outcome.losses, one.losses), difference(outcome.gradients, one.gradients),
                       difference(outcome.weights, one.weights), outcome.bytes,
                       outcome.pipeline.calls + outcome.tensor.calls + outcome.data.calls,
                       outcome.pipeline.bytes + outcome.tensor.bytes + outcome.data.bytes);
  }
  ASSERT_TRUE(out.good()) << path;
}

struct Bounds {
  double loss, gradient, weight;
};

// fp32: the sums of a matrix product and over micro-batches are cut differently, so each of some twenty
// operations between a weight and the loss rounds differently by 6e-8 of its largest terms, together below
// 1e-5; weights collect the relative error of twenty updates. 16-bit types round partial sums and the weights
// themselves to 2^-9 or 2^-12, and a weight that rounds to its neighbour stays there. Adam moves a weight by
// the learning rate even where its gradient is hardly more than rounding, so that biases, which are nothing
// but what twenty updates made of zero, differ most: by some hundredths in bf16.
Bounds bounds(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return {1e-5, 1e-5, 1e-5};
    case Precision::bf16:
      return {5e-3, 0.1, 0.05};
    case Precision::fp16:
      return {1e-3, 0.02, 0.01};
  }
  return {};
}

void expect_same_training(const std::string& title, const Recipe& recipe,
                          const std::vector<Layout>& layouts) {
  const double loss_scale = recipe.train.precision == Precision::fp16 ? 1024 : 1;
  const LayoutOutcome one = train_layout(recipe, {}, loss_scale);
  EXPECT_LT(one.losses.back(), 0.99 * one.losses.front()) << "nothing is learnt";
  const Bounds bound = bounds(recipe.train.precision);
  std::vector<std::pair<Layout, LayoutOutcome>> outcomes;
  for (const Layout& layout : layouts) {
    const LayoutOutcome many = train_layout(recipe, layout, loss_scale);
    const std::string what = title + ", " + to_string(layout);
    EXPECT_LE(difference(many.losses, one.losses), bound.loss) << what;
    EXPECT_LE(difference(many.gradient_norms, one.gradient_norms), bound.gradient) << what;
    EXPECT_LE(difference(many.gradients, one.gradients), bound.gradient) << what;
    EXPECT_LE(difference(many.weights, one.weights), bound.weight) << what;
    EXPECT_LE(difference({many.validation_loss}, {one.validation_loss}), bound.loss) << what;
    outcomes.emplace_back(layout, many);
  }
  write_table(title, outcomes, one);
}

std::vector<Layout> layouts_for(int most_tensor) {
  std::vector<Layout> layouts;
  const std::vector<Layout> all = {
      {.tensor = 2},
      {.tensor = 3},
      {.tensor = 4},
      {.tensor = 6},
      {.tensor = 8},
      {.data = 2},
      {.data = 3, .zero_stage = 1},
      {.tensor = 2, .data = 2},
      {.tensor = 2, .data = 3},
      {.tensor = 2, .data = 2, .zero_stage = 1},
      {.tensor = 4, .data = 2, .zero_stage = 1},
      {.tensor = 2, .sequence_parallel = true},
      {.tensor = 3, .sequence_parallel = true},
      {.tensor = 8, .sequence_parallel = true},
      {.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 1},
      {.tensor = 2, .data = 2, .zero_stage = 2},
      {.tensor = 2, .data = 3, .sequence_parallel = true, .zero_stage = 2},
      {.tensor = 2, .data = 2, .zero_stage = 3, .recompute = Recompute::full},
      {.tensor = 2, .data = 3, .sequence_parallel = true, .zero_stage = 3},
      {.tensor = 2, .pipeline = 2},
      {.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true, .zero_stage = 1},
      {.tensor = 3, .pipeline = 2, .sequence_parallel = true, .recompute = Recompute::full},
      {.data = 4, .zero_stage = 2},
      {.data = 3, .zero_stage = 3, .recompute = Recompute::full},
      {.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 2},
      {.tensor = 2, .data = 3, .zero_stage = 3, .recompute = Recompute::attention},
      {.data = 2, .pipeline = 2, .zero_stage = 1},
      {.tensor = 2, .recompute = Recompute::attention},
      {.tensor = 4, .recompute = Recompute::full},
      {.tensor = 4, .sequence_parallel = true, .recompute = Recompute::attention},
      {.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 1, .recompute = Recompute::full},
  };
  for (const Layout& layout : all) {
    if (layout.tensor <= most_tensor) layouts.push_back(layout);
  }
  return layouts;
}

TEST(Layouts, GptTrainsAsInOneProcess) {
  expect_same_training("GPT, tied, fp32", layout_recipe(ModelForm::gpt2), layouts_for(8));
}

TEST(Layouts, LlamaTrainsAsInOneProcess) {
  Recipe recipe = layout_recipe(ModelForm::llama);
  recipe.model.num_kv_heads = 12;
  expect_same_training("LLaMA, untied, fp32", recipe, layouts_for(6));
}

TEST(Layouts, UntiedAndTiedFormsTheOtherWayRound) {
  Recipe gpt = layout_recipe(ModelForm::gpt2);
  gpt.model.tied_embeddings = false;
  Recipe llama = layout_recipe(ModelForm::llama);
  llama.model.tied_embeddings = true;
  const std::vector<Layout> layouts = {{.tensor = 2, .data = 2}, {.tensor = 4, .sequence_parallel = true}};
  expect_same_training("GPT, untied, fp32", gpt, layouts);
  expect_same_training("LLaMA, tied, fp32", llama, layouts);
}

/// Families whose blocks are put together in other ways than GPT's and LLaMA's.
std::vector<std::pair<std::string, Recipe>> other_families() {
  std::vector<std::pair<std::string, Recipe>> all;
  for (const ModelForm form :
       {ModelForm::gemma3, ModelForm::gptj, ModelForm::gpt_neox, ModelForm::opt, ModelForm::bloom}) {
    Recipe recipe = layout_recipe(form);
    recipe.parallel.zero_persistent_elements = 0;
    ModelConfig& model = recipe.model;
    if (form == ModelForm::gemma3) {
      // The norm of a head of two columns is little more than their signs, and grows every rounding error.
      model.num_heads = model.num_kv_heads = 6;
      model.head_size = 8;
      model.window = 7;
      model.window_period = 2;
      model.embedding_scale = 2;
      model.logit_softcap = 20;
    }
    if (form == ModelForm::opt) {
      model.norm_placement = NormPlacement::post;
      model.final_norm = false;
    }
    // With ZeRO 3 an untied head takes the embedding's buffer, whose norm the backward pass needs again.
    if (form == ModelForm::bloom) model.tied_embeddings = false;
    all.emplace_back(kModelFormNames[static_cast<size_t>(form)], recipe);
  }
  return all;
}

const std::vector<Layout> kLayoutsOfOtherFamilies = {
    {.tensor = 2, .recompute = Recompute::attention},
    {.tensor = 2, .recompute = Recompute::full},
    {.tensor = 3, .pipeline = 2, .sequence_parallel = true, .recompute = Recompute::full},
    {.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 2, .recompute = Recompute::attention},
    {.data = 3, .zero_stage = 3, .recompute = Recompute::full}};

TEST(Layouts, OtherFamiliesTrainAsInOneProcess) {
  for (const auto& [name, recipe] : other_families())
    expect_same_training(name + ", fp32", recipe, kLayoutsOfOtherFamilies);
}

TEST(Layouts, HalfPrecisionTrainsAsInOneProcess) {
  const std::vector<Layout> layouts = {
      {.tensor = 2},
      {.tensor = 2, .data = 2, .zero_stage = 1},
      {.tensor = 4, .sequence_parallel = true},
      {.tensor = 2, .data = 2, .sequence_parallel = true, .zero_stage = 3},
      {.tensor = 2, .sequence_parallel = true, .recompute = Recompute::full}};
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const ModelForm form : {ModelForm::gpt2, ModelForm::llama}) {
      Recipe recipe = layout_recipe(form);
      recipe.train.precision = precision;
      expect_same_training(fmt::format("{}, {}", form == ModelForm::gpt2 ? "GPT" : "LLaMA",
                                       kPrecisionNames[static_cast<size_t>(precision)]),
                           recipe, layouts);
    }
  }
}

TEST(Layouts, ZeroStagesAndRecomputeChangeNoBit) {
  const Recipe recipe = layout_recipe(ModelForm::gpt2);
  for (const bool sequence_parallel : {false, true}) {
    Layout layout{.tensor = 2, .data = 2, .sequence_parallel = sequence_parallel};
    const LayoutOutcome plain = train_layout(recipe, layout);
    for (const int64_t stage : {0, 1}) {
      for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::full}) {
        layout.zero_stage = stage;
        layout.recompute = recompute;
        const LayoutOutcome other = train_layout(recipe, layout);
        EXPECT_EQ(other.losses, plain.losses) << to_string(layout);
        EXPECT_EQ(other.gradient_norms, plain.gradient_norms) << to_string(layout);
        EXPECT_EQ(other.weights, plain.weights) << to_string(layout);
      }
    }
  }
}

// Sequence parallelism exchanges what all-reduces would, as twice the calls of half the volume each.
TEST(Layouts, MessagesAreThoseOfTheMethod) {
  const Recipe recipe = layout_recipe(ModelForm::gpt2);
  const uint64_t layers = static_cast<uint64_t>(recipe.model.num_layers);
  const uint64_t micro_batches = static_cast<uint64_t>(recipe.train.global_batch);
  const LayoutOutcome whole = train_layout(recipe, {.tensor = 2});
  EXPECT_EQ(whole.tensor.calls, micro_batches * (4 * layers + 3));
  const LayoutOutcome cut = train_layout(recipe, {.tensor = 2, .sequence_parallel = true});
  // The gradients of norms are added up once a step, those of deferred units by themselves.
  EXPECT_GE(cut.tensor.calls, micro_batches * (2 * (4 * layers + 2) + 1) + 1);
  EXPECT_LE(cut.tensor.calls, micro_batches * (2 * (4 * layers + 2) + 1) + 3);
  // Attention's all-reduce comes again with the block.
  const LayoutOutcome again = train_layout(recipe, {.tensor = 2, .recompute = Recompute::full});
  EXPECT_EQ(again.tensor.calls, micro_batches * (5 * layers + 3));
}

void expect_predicted_memory(const std::string& name, Recipe recipe, const std::vector<Layout>& layouts) {
  recipe.model.hidden_size *= 2;
  recipe.model.head_size *= 2;
  recipe.model.ffn_hidden_size = 384;
  recipe.train.micro_batch = 4;
  recipe.train.global_batch = 12;
  recipe.train.steps = 1;
  for (const Layout& layout : layouts) {
    const LayoutOutcome outcome = train_layout(recipe, layout);
    EXPECT_NEAR(static_cast<double>(outcome.bytes) / static_cast<double>(outcome.predicted_bytes), 1, 0.03)
        << name << ", " << to_string(layout);
  }
}

TEST(Layouts, MemoryOfARankIsWhatWasPredicted) {
  expect_predicted_memory("gpt2", layout_recipe(ModelForm::gpt2), layouts_for(8));
  for (const auto& [name, recipe] : other_families())
    expect_predicted_memory(name, recipe, kLayoutsOfOtherFamilies);
}

TEST(Layouts, WhatCannotBeSharedIsRefusedWithWhatCan) {
  const auto error_of = [](Recipe recipe, const Layout& layout, int ranks) -> std::string {
    recipe.parallel.tensor = layout.tensor;
    recipe.parallel.sequence_parallel = layout.sequence_parallel;
    try {
      check_layout(recipe, ranks);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  Recipe recipe = layout_recipe(ModelForm::gpt2);
  // heads, key/value heads, ranks, whether it can be
  for (const auto& [heads, kv_heads, tensor, fits] :
       {std::tuple{8, 2, 4, false}, std::tuple{8, 2, 8, false}, std::tuple{12, 3, 2, false},
        std::tuple{40, 40, 3, false}, std::tuple{28, 4, 8, false}, std::tuple{71, 1, 2, false},
        std::tuple{8, 2, 2, true}, std::tuple{12, 3, 3, true}}) {
    recipe.model.num_heads = heads;
    recipe.model.num_kv_heads = kv_heads;
    const std::string error = error_of(recipe, {.tensor = tensor}, tensor);
    EXPECT_EQ(error == "no error", fits) << error;
    if (fits) continue;
    // What the error names does build.
    const std::string possible = error.substr(error.find("possible are ") + 13);
    std::istringstream list(possible);
    for (std::string item; std::getline(list, item, ',');) {
      const int named = std::stoi(item);
      EXPECT_EQ(error_of(recipe, {.tensor = named}, named), "no error");
      EXPECT_NO_THROW(Transformer(recipe.model, TensorParallel::described(0, named, false)));
    }
  }
  recipe = layout_recipe(ModelForm::gpt2);
  EXPECT_NE(error_of(recipe, {.tensor = 2}, 3).find("multiple of 2"), std::string::npos);
  recipe.data.sequence_length = 7;
  EXPECT_EQ(error_of(recipe, {.tensor = 2}, 2), "no error");
  EXPECT_NE(error_of(recipe, {.tensor = 2, .sequence_parallel = true}, 2).find("sequence_length = 7"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
