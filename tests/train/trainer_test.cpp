#include "megalith/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/random.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/formats/indexed_dataset.h"
#include "megalith/train/training_step.h"
#include "tests/train/small_run.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const CheckpointReader x(a), y(b);
  ASSERT_EQ(x.tensor_names(), y.tensor_names());
  for (const std::string& name : x.tensor_names()) {
    const auto p = x.tensor(name).span<float>(), q = y.tensor(name).span<float>();
    EXPECT_TRUE(std::equal(p.begin(), p.end(), q.begin(), q.end())) << name;
  }
}

TEST(Trainer, AResumedRunEqualsTheUnbrokenOneBitForBit) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    Recipe recipe = small_recipe();
    recipe.model.hidden_dropout = recipe.model.attention_dropout = recipe.model.embedding_dropout = 0.1;
    recipe.train.precision = precision;
    recipe.train.loss_scale_interval = 5;
    // 480 tokens are 29 samples of 16: with the ramp 2, 3, 4 the run passes an epoch in the middle of a
    // batch.
    recipe.train.batch_ramp_start = 2;
    recipe.train.batch_ramp_increment = 1;
    recipe.train.batch_ramp_samples = 11;
    const fs::path unbroken = scratch("unbroken"), broken = scratch("broken");
    train(recipe, into(unbroken));
    for (const int64_t stop : {4, 9, 12}) {  // inside the ramp; inside the second epoch; the end
      Recipe part = recipe;
      part.checkpoint.every = part.checkpoint.keep_every = stop;
      const fs::path donor = scratch("donor");
      train(part, into(donor));
      const fs::path checkpoint = donor / "checkpoints" / checkpoint_name(stop);
      fs::remove_all(broken);
      fs::create_directories(broken / "checkpoints");
      fs::copy(checkpoint, broken / "checkpoints" / checkpoint_name(stop), fs::copy_options::recursive);
      fs::copy_file(donor / "log.jsonl", broken / "log.jsonl");
      train(recipe, into(broken));
      EXPECT_EQ(log_lines(broken), log_lines(unbroken)) << "resumed at " << stop;
      expect_same_tensors(broken / "checkpoints" / checkpoint_name(12),
                          unbroken / "checkpoints" / checkpoint_name(12));
    }
  }
}

TEST(Trainer, LoadingAndSavingChangesNoWeight) {
  Recipe recipe = small_recipe();
  const fs::path first = scratch("first"), second = scratch("second");
  train(recipe, into(first));
  // A run that begins at its own end saves nothing anew in its directory but can be begun elsewhere and saved
  // by a signal-free pass.
  train(recipe, into(second, (first / "checkpoints" / checkpoint_name(12)).string()));
  recipe.train.steps = 13;
  recipe.optimizer.learning_rate = 0;
  recipe.schedule.min_learning_rate = 0;
  recipe.schedule.warmup_steps = 0;
  train(recipe, into(second, first.string()));
  const CheckpointReader a(first / "checkpoints" / checkpoint_name(12)),
      b(second / "checkpoints" / checkpoint_name(13));
  for (const std::string& name : a.tensor_names()) {
    if (name.find("moment/") != std::string::npos) continue;
    const auto p = a.tensor(name).span<float>(), q = b.tensor(name).span<float>();
    EXPECT_TRUE(std::equal(p.begin(), p.end(), q.begin(), q.end())) << name;
  }
}

TEST(Trainer, MicroBatchesDoNotChangeTheBatch) {
  // 5 samples in micro-batches of 5, 2+2+1, 1x5 and 4+1: the same loss, gradient norm and weights up to fp32
  // rounding.
  std::vector<double> reference;
  for (const int64_t micro : {5, 2, 1, 4}) {
    Recipe recipe = small_recipe();
    recipe.train.micro_batch = micro;
    recipe.train.global_batch = 5;
    recipe.data.reset_at_documents =
        true;  // some targets are masked, so micro-batches have different numbers of tokens
    const fs::path run = scratch("micro");
    train(recipe, into(run));
    const auto values = losses(run);
    if (reference.empty()) reference = values;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], reference[i], 2e-5 * reference[i]) << "micro-batch " << micro;
  }
}

TEST(Trainer, AShorterLastBatchIsNotDividedByTheFullOne) {
  // Learning rate 0 and every sample the same: loss and gradient norm must agree in steps of 4, 4 and 2
  // samples.
  const fs::path prefix = scratch("same") / "same";
  {
    IndexedDatasetWriter writer(prefix, TokenType::uint16);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 16 * 10; ++i) tokens.push_back(i % 16);
    writer.add_document(tokens);
    writer.finish();
  }
  Recipe recipe = small_recipe();
  recipe.data.train = {{prefix.string(), 1.0}};
  recipe.train.steps = 0;
  recipe.train.samples = 10;
  recipe.schedule = ScheduleConfig();
  recipe.optimizer.learning_rate = 0;
  recipe.schedule.min_learning_rate = 0;
  const fs::path run = scratch("short");
  train(recipe, into(run));
  std::vector<nlohmann::json> lines;
  for (const auto& [step, line] : log_lines(run)) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2]["batch"], 2);
  for (const auto& line : lines) {
    EXPECT_NEAR(line["loss"].get<double>(), lines[0]["loss"].get<double>(), 1e-6);
    EXPECT_NEAR(line["gradient_norm"].get<double>(), lines[0]["gradient_norm"].get<double>(), 1e-5);
  }
}

TEST(Trainer, LearnsToCountInEveryPrecisionAndWithEveryOptimizer) {
  const auto final_loss = [](const std::function<void(Recipe&)>& change) {
    Recipe recipe = small_recipe();
    recipe.train.steps = 120;
    recipe.train.global_batch = recipe.train.micro_batch = 8;
    recipe.optimizer.learning_rate = 1e-2;
    change(recipe);
    const fs::path run = scratch("learn");
    train(recipe, into(run));
    return losses(run).back();
  };
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    EXPECT_LT(final_loss([&](Recipe& r) { r.train.precision = precision; }), 0.2)
        << kPrecisionNames[static_cast<size_t>(precision)];
  }
  EXPECT_LT(final_loss([](Recipe& r) {
              r.optimizer.type = OptimizerType::sgd;
              r.optimizer.learning_rate = 0.3;
              r.schedule.min_learning_rate = 0.1;
              r.optimizer.weight_decay = 0;
            }),
            1.0);
  EXPECT_LT(final_loss([](Recipe& r) {
              r.optimizer.type = OptimizerType::lamb;
              r.optimizer.learning_rate = 0.05;
            }),
            0.5);
  EXPECT_LT(final_loss([](Recipe& r) {
              const int64_t vocabulary = r.model.vocab_size;
              r.model = ModelConfig::defaults(ModelForm::llama);
              r.model.vocab_size = vocabulary;
              r.model.num_layers = 2;
              r.model.hidden_size = 32;
              r.model.num_heads = 4;
              r.model.num_kv_heads = 2;
              r.model.max_positions = 16;
            }),
            0.3);
}

TEST(Trainer, OverfitsOneBatch) {
  Recipe recipe = small_recipe();
  recipe.data.train = {{counting_dataset(1, 64, 23), 1.0}};  // four samples
  recipe.train.steps = 300;
  recipe.train.global_batch = recipe.train.micro_batch = 4;
  recipe.optimizer.learning_rate = 1e-2;
  recipe.optimizer.weight_decay = 0;
  const fs::path run = scratch("overfit");
  EXPECT_LT(train(recipe, into(run)).final_loss, 0.01);
}

TEST(Trainer, PermanentFp16OverflowEndsTheRunWithAnExplanation) {
  Recipe recipe = small_recipe();
  recipe.train.precision = Precision::fp16;
  recipe.train.loss_scale_start = 4;
  recipe.train.loss_scale_patience = 3;
  recipe.optimizer.learning_rate = 1000;  // after one step activations are far beyond 65504 for ever
  recipe.train.steps = 50;
  const fs::path run = scratch("overflow");
  try {
    train(recipe, into(run));
    FAIL() << "a model that overflows at every scale trained to the end";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("overflowed 3 times in a row at the smallest loss scale, 1"), std::string::npos)
        << text;
  }
}

TEST(Trainer, AnOverflowSkipsStepAndScheduleAndHalvesTheScale) {
  Recipe recipe = small_recipe();
  recipe.train.precision = Precision::fp16;
  recipe.train.loss_scale_start = 4294967296.0;  // the first gradients overflow for sure
  recipe.train.steps = 40;
  recipe.schedule.warmup_steps = 40;
  const fs::path run = scratch("scale");
  train(recipe, into(run));
  double updates = 0, scale = 4294967296.0;
  bool skipped_one = false;
  for (const auto& [step, line] : log_lines(run)) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["loss_scale"].get<double>(), scale);
    // A skipped step has not used up its place in the schedule.
    EXPECT_NEAR(json["learning_rate"].get<double>(), recipe.optimizer.learning_rate * (updates + 1) / 40,
                1e-12);
    if (json.contains("skipped")) {
      scale /= 2;
      skipped_one = true;
    } else {
      updates += 1;
    }
  }
  EXPECT_TRUE(skipped_one);
  EXPECT_GT(updates, 10);
}

TEST(Trainer, ALossThatIsNotFiniteStopsTheRunByName) {
  Recipe recipe = small_recipe();
  const fs::path run = scratch("nan");
  train(recipe, into(run));
  // Poison one weight of the checkpoint (with a correct checksum) and go on.
  const fs::path checkpoint = run / "checkpoints" / checkpoint_name(12);
  {
    const CheckpointReader reader(checkpoint);
    std::vector<Tensor> copies;
    std::vector<CheckpointTensor> model, moments;
    for (const std::string& name : reader.tensor_names()) {
      const TensorView view = reader.tensor(name);
      copies.emplace_back(DType::f32, view.shape());
      std::copy_n(view.data<float>(), view.elements(), copies.back().data<float>());
      if (name == "layers.1.feed_forward.up.weight") copies.back().data<float>()[3] = std::nanf("");
      (name.find("moment/") == std::string::npos ? model : moments).push_back({name, copies.back()});
    }
    CheckpointWriter writer(run / "checkpoints" / checkpoint_name(13));
    writer.write_tensors("model.safetensors", model);
    writer.write_tensors("optimizer.safetensors", moments);
    for (const char* file : {"recipe.toml", "model.toml"}) writer.write_file(file, reader.read_file(file));
    auto state = nlohmann::json::parse(reader.state());
    state["step"] = 13;
    writer.commit(13, state.dump());
  }
  recipe.train.steps = 20;
  try {
    train(recipe, into(run));
    FAIL() << "a NaN in the weights went unnoticed";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("step 14: the loss is not finite; the weights are those of step 13"))
        << text;
    EXPECT_NE(text.find(checkpoint_name(13)), std::string::npos);
  }
  // Skipping does not go on for ever.
  recipe.train.on_not_finite = NotFinitePolicy::skip;
  recipe.train.not_finite_patience = 3;
  try {
    train(recipe, into(run));
    FAIL() << "a run that only skips went on";
  } catch (const Error& error) {
    EXPECT_TRUE(
        std::string(error.what()).starts_with("step 16: the loss is not finite, as in the 2 steps before"))
        << error.what();
  }
}

TEST(Trainer, KeepsTheCheckpointsThatTheRecipeSays) {
  Recipe recipe = small_recipe();
  recipe.checkpoint.every = 2;
  recipe.checkpoint.keep_last = 2;
  recipe.checkpoint.keep_every = 4;
  const fs::path run = scratch("keep");
  train(recipe, into(run));
  std::vector<int64_t> steps;
  for (const auto& [step, path] : list_checkpoints(run)) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 8, 10, 12}));
}

TEST(Trainer, RefusesAnotherModelAndARunThatIsThere) {
  Recipe recipe = small_recipe();
  const fs::path run = scratch("other");
  train(recipe, into(run));
  EXPECT_THROW(train(recipe, into(run, "none")), InputError);
  recipe.model.num_layers = 3;
  recipe.train.steps = 20;
  try {
    train(recipe, into(run));
    FAIL() << "another model loaded";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("num_layers = 2, the recipe num_layers = 3"), std::string::npos)
        << error.what();
  }
}

TEST(Trainer, ADamagedCheckpointIsNamedWithTheOneBefore) {
  Recipe recipe = small_recipe();
  recipe.checkpoint.every = 6;
  const fs::path run = scratch("damaged");
  train(recipe, into(run));
  const fs::path file = run / "checkpoints" / checkpoint_name(12) / "optimizer.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  write_file_atomic(file, bytes);
  recipe.train.steps = 14;
  try {
    train(recipe, into(run));
    FAIL() << "a damaged checkpoint loaded";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("optimizer.safetensors is damaged"), std::string::npos) << text;
    EXPECT_NE(text.find(checkpoint_name(6)), std::string::npos) << text;
  }
  EXPECT_NO_THROW(train(recipe, into(run, (run / "checkpoints" / checkpoint_name(6)).string())));
}

TEST(Trainer, ADirectoryInUseIsRefused) {
  const fs::path run = scratch("locked");
  {
    const FileLock other(run / ".lock", "the run");
    EXPECT_THROW(train(small_recipe(), into(run)), InputError);
  }
  EXPECT_NO_THROW(train(small_recipe(), into(run)));
}

TEST(Trainer, TheTestPartIsMeasuredOnceAtTheEnd) {
  Recipe recipe = small_recipe();
  recipe.data.split = "8,2,2";
  recipe.log.validate_every = 6;
  const fs::path run = scratch("test-part");
  train(recipe, into(run));
  const std::string log = read_file(run / "log.jsonl");
  const size_t at = log.find("\"kind\": \"test\", \"step\": 12, \"test_loss\": ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(log.find("test_loss", log.find("test_loss") + 1), std::string::npos);
}

// The tokens around a hidden one say what it is.
TEST(Trainer, AMaskedLanguageModelLearnsWhatIsHidden) {
  const fs::path directory = scratch("masked");
  std::string vocabulary;
  for (int i = 0; i < 23; ++i) vocabulary += fmt::format("\"w{}\": {}, ", i, i);
  write_file_atomic(
      directory / "tokenizer.json",
      R"({"added_tokens": [{"id": 23, "content": "[MASK]", "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false, "special": true}],
                        "pre_tokenizer": {"type": "Whitespace"},
                        "model": {"type": "WordLevel", "unk_token": "w0", "vocab": {)" +
          vocabulary + "\"[MASK]\": 23}}}");
  Recipe recipe = small_recipe();
  const ModelConfig sizes = recipe.model;
  recipe.model = ModelConfig::defaults(ModelForm::bert);
  recipe.model.vocab_size = 24;
  recipe.model.num_layers = sizes.num_layers;
  recipe.model.hidden_size = sizes.hidden_size;
  recipe.model.num_heads = sizes.num_heads;
  recipe.model.max_positions = sizes.max_positions;
  recipe.train.steps = 1200;
  recipe.train.global_batch = recipe.train.micro_batch = 8;
  recipe.resolve();
  EXPECT_THROW(train(recipe, into(directory / "no-tokenizer")), InputError);
  recipe.data.tokenizer = (directory / "tokenizer.json").string();
  train(recipe, into(directory / "run"));
  const auto values = losses(directory / "run");
  EXPECT_GT(values.front(), 2.5);  // log 24 = 3.18
  EXPECT_LT(std::accumulate(values.end() - 20, values.end(), 0.0) / 20, 1.2);
}

TEST(Trainer, TokensBeyondTheVocabularyAreRefused) {
  Recipe recipe = small_recipe();
  recipe.model.vocab_size = 20;
  EXPECT_THROW(train(recipe, into(scratch("vocabulary"))), InputError);
}

TEST(Trainer, ASteadyStepAllocatesNothingInItsArenas) {
  Recipe recipe = small_recipe();
  TrainingArenas arenas;
  const ExecContext exec{arenas.workspace, 2};
  recipe.model.resolve();
  const auto self = make_self_communicator();
  ParallelGroups groups(*self, 1, 1);
  TrainingStep step(recipe, arenas, exec, groups);
  step.initialize();
  const BatchSources sources =
      open_batch_sources({{recipe.data.train[0].path, 1.0}}, {}, {}, "", {.sequence_length = 16});
  TrainingState state;
  step.run(*sources.train, state, 4, 1e-3, 1);
  const size_t activations = arenas.high_water("activations"), workspace = arenas.workspace.high_water();
  for (int i = 0; i < 3; ++i) step.run(*sources.train, state, 4, 1e-3, 1);
  EXPECT_EQ(arenas.high_water("activations"), activations);
  EXPECT_EQ(arenas.workspace.high_water(), workspace);
  EXPECT_EQ(arenas.activations(0).used(), 0u);
  EXPECT_EQ(arenas.workspace.used(), 0u);
}

}  // namespace
}  // namespace megalith
