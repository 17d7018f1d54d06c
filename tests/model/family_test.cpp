// Every family against transformers (tests/golden/make_family_goldens.py): outputs of all positions, greedy
// tokens, and the way through the other formats and back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "megalith/formats/safetensors.h"
#include "megalith/model/gguf_family.h"
#include "megalith/model/hugging_face.h"
#include "megalith/model/model_files.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path golden(const std::string& name) {
  return fs::path(std::getenv("MEGALITH_TEST_DATA")) / "golden" / "families" / name;
}

std::vector<std::string> variants() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden("")))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class FamilyGolden : public ::testing::TestWithParam<std::string> {
 protected:
  Arena workspace{"workspace"};
  const ExecContext exec{workspace, 2};
  const fs::path directory = golden(GetParam());
  const SafetensorsFile expected{directory / "expected.safetensors"};
  fs::path scratch = fs::path(::testing::TempDir()) / ("family_" + GetParam());

  void SetUp() override { fs::remove_all(scratch); }
  void TearDown() override { fs::remove_all(scratch); }

  TensorView view(const char* name) const { return expected.view(*expected.find(name)); }
  static double largest(TensorView x) {
    double most = 0;
    for (int64_t i = 0; i < x.elements(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(x.data<float>()[i])));
    }
    return most;
  }

  // The largest error of logits (or hidden states) at any position, over the largest magnitude.
  double output_error(const LoadedModel& loaded) {
    const ModelConfig& config = loaded.config();
    const TensorView tokens = view("tokens"), output = view("output");
    const int64_t batch = tokens.shape()[0], length = tokens.shape()[1], n = batch * length;
    std::vector<int32_t> ids(tokens.data<int32_t>(), tokens.data<int32_t>() + n), positions;
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(i % length));
    TokenBatch input;
    input.batch = batch;
    input.tokens = length;
    input.token_ids = {ids.data(), DType::i32, {n}};
    input.positions = {positions.data(), DType::i32, {n}};
    const Tensor hidden(DType::f32, {n, config.hidden_size});
    loaded.model().encode(exec, input, hidden);
    const bool has_logits = config.head != HeadKind::none;
    const int64_t columns = has_logits ? config.vocab_size : config.hidden_size;
    const int64_t stride = has_logits ? config.padded_vocabulary() : config.hidden_size;
    EXPECT_EQ(output.shape(), (Shape{batch, length, columns}));
    Tensor logits(DType::f32, {n, stride});
    if (has_logits) loaded.model().logits(exec, hidden, logits);
    const float* ours = has_logits ? logits.data<float>() : hidden.data<float>();
    double error = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < columns; ++c) {
        error =
            std::max<double>(error, std::abs(ours[i * stride + c] - output.data<float>()[i * columns + c]));
      }
    }
    if (config.pooler) {
      const TensorView pooled = view("pooled");
      Tensor first(DType::f32, {batch, config.hidden_size}), mine(DType::f32, first.shape());
      for (int64_t b = 0; b < batch; ++b) {
        std::copy_n(hidden.data<float>() + b * length * config.hidden_size, config.hidden_size,
                    first.data<float>() + b * config.hidden_size);
      }
      loaded.model().pool(exec, first, mine);
      for (int64_t i = 0; i < pooled.elements(); ++i) {
        error = std::max<double>(error, std::abs(mine.data<float>()[i] - pooled.data<float>()[i]));
      }
    }
    return error / largest(output);
  }

  std::vector<int32_t> greedy(const LoadedModel& loaded) {
    const TensorView all = view("greedy");
    const int64_t prompt = view("prompt").data<int32_t>()[0], total = all.elements();
    std::vector<int32_t> ids(all.data<int32_t>(), all.data<int32_t>() + prompt);
    Arena arena("cache");
    ModelCache cache = make_cache(loaded.config(), DType::f32, total, arena);
    Tensor logits(DType::f32, {1, loaded.config().padded_vocabulary()});
    std::vector<int32_t> fresh = ids;
    while (static_cast<int64_t>(ids.size()) < total) {
      if (loaded.config().keys_change_beyond(cache.length)) {
        fresh = ids;
        cache.length = 0;
      }
      loaded.model().forward_cached(
          exec, TensorView(fresh.data(), DType::i32, {static_cast<int64_t>(fresh.size())}), cache, logits);
      const float* row = logits.data<float>();
      fresh = {static_cast<int32_t>(std::max_element(row, row + loaded.config().vocab_size) - row)};
      ids.push_back(fresh[0]);
    }
    return ids;
  }

  void expect_right(const LoadedModel& loaded, const std::string& what) {
    EXPECT_LT(output_error(loaded), 2e-5) << what;
    if (expected.find("greedy") == nullptr) return;
    const TensorView want = view("greedy");
    EXPECT_EQ(greedy(loaded),
              std::vector<int32_t>(want.data<int32_t>(), want.data<int32_t>() + want.elements()))
        << what;
  }

  // Weights as they lie in the file give the same numbers, bit for bit.
  void expect_same_as_stored(const ModelDescription& description, const LoadedModel& copied) {
    const LoadedModel stored(description, DType::f32, exec, WeightForm::as_stored);
    EXPECT_EQ(output_error(stored), output_error(copied));
    EXPECT_LT(stored.parameters().elements(), copied.parameters().elements());
  }

  // Tensors of two directories, bit for bit, but for those that a format stores otherwise.
  void expect_equal_tensors(const fs::path& one, const fs::path& other, double tolerance) {
    const SafetensorsFile theirs(one / "model.safetensors"), ours(other / "model.safetensors");
    ASSERT_EQ(theirs.entries().size(), ours.entries().size());
    for (const SafetensorsEntry& entry : theirs.entries()) {
      const SafetensorsEntry* found = ours.find(entry.name);
      ASSERT_NE(found, nullptr) << entry.name;
      ASSERT_EQ(entry.shape, found->shape) << entry.name;
      const TensorView x = theirs.view(entry), y = ours.view(*found);
      // Rows that nothing uses come back as zero.
      const bool skips = entry.name.ends_with("embed_positions.weight") ||
                         (GetParam() == "roberta" && entry.name.ends_with("position_embeddings.weight"));
      const int64_t unused = skips ? 2 * entry.shape[1] : 0;
      const bool norm = entry.name.find("norm") != std::string::npos;
      for (int64_t i = unused; i < x.elements(); ++i) {
        const float a = x.data<float>()[i], b = y.data<float>()[i];
        ASSERT_NEAR(a, b, norm ? tolerance : 0) << entry.name << " " << i;
      }
    }
  }
};

TEST_P(FamilyGolden, GivesTheOutputsOfTransformers) {
  const LoadedModel loaded(describe_model(directory), DType::f32, exec);
  expect_right(loaded, "as transformers wrote it");
  expect_same_as_stored(describe_model(directory), loaded);
}

TEST_P(FamilyGolden, SurvivesTheWayThroughACheckpointAndBack) {
  const ModelDescription description = describe_model(directory);
  const LoadedModel loaded(description, DType::f32, exec);
  save_model_checkpoint(loaded, {}, scratch / "checkpoint", "{}");
  const ModelDescription saved = describe_model(scratch / "checkpoint");
  EXPECT_EQ(differences(saved.config, description.config), std::vector<std::string>());
  const LoadedModel again(saved, DType::f32, exec);
  save_hugging_face(again, {}, DType::f32, scratch / "hf");
  const ModelDescription written = describe_model(scratch / "hf");
  EXPECT_EQ(written.config.form, description.config.form);
  EXPECT_EQ(differences(written.config, description.config), std::vector<std::string>());
  // Gemma's norms are kept as one plus the stored value, which rounds.
  expect_equal_tensors(directory, scratch / "hf", GetParam().starts_with("gemma") ? 1e-7 : 0);
}

TEST_P(FamilyGolden, SurvivesTheWayThroughGgufAndBack) {
  const ModelDescription description = describe_model(directory);
  const LoadedModel loaded(description, DType::f32, exec);
  const fs::path path = scratch / "model.gguf";
  const ModelForm form = description.config.form;
  if (gguf_architecture_of(form) == nullptr || description.config.rope_scaling == RopeScaling::dynamic ||
      GetParam() == "opt_post_norm" || GetParam() == "qwen2_window") {
    // llama.cpp has no such models.
    EXPECT_THROW(save_gguf(loaded.config(), loaded.all_parameters(), GgufType::f32, {}, exec, path),
                 InputError);
    return;
  }
  fs::create_directories(scratch);
  save_gguf(loaded.config(), loaded.all_parameters(), GgufType::f32, {}, exec, path);
  const ModelDescription back = describe_model(path);
  const LoadedModel again(back, DType::f32, exec);
  if (form == ModelForm::bert || form == ModelForm::roberta) {
    // GGUF keeps what makes embeddings.
    EXPECT_EQ(back.config.head, HeadKind::none);
    if (description.config.head == HeadKind::none) {
      EXPECT_LT(output_error(again), 2e-5);
    }
    return;
  }
  expect_right(again, "from GGUF");
  expect_same_as_stored(back, again);
  save_hugging_face(again, {}, DType::f32, scratch / "hf");
  const ModelDescription written = describe_model(scratch / "hf");
  expect_right(LoadedModel(written, DType::f32, exec), "from GGUF to Hugging Face");
  if (written.config.form != form) return;  // another family says the same
  expect_equal_tensors(directory, scratch / "hf", GetParam().starts_with("gemma") ? 1e-7 : 0);
}

INSTANTIATE_TEST_SUITE_P(Variants, FamilyGolden, ::testing::ValuesIn(variants()),
                         [](const auto& variant) { return variant.param; });

}  // namespace
}  // namespace megalith
