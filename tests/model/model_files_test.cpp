#include "megalith/model/model_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstdlib>

#include "megalith/base/error.h"
#include "megalith/model/hugging_face.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path golden(const std::string& name) {
  return fs::path(std::getenv("MEGALITH_TEST_DATA")) / "golden" / name;
}

fs::path scratch(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / "megalith-model-test" / name;
  fs::remove_all(path);
  return path;
}

class ModelFiles : public ::testing::TestWithParam<const char*> {
 protected:
  Arena workspace{"workspace", 64u << 20};
  ExecContext exec{workspace, 2};
};

void expect_equal_weights(const LoadedModel& a, const LoadedModel& b) {
  const auto x = a.parameters().values().span<float>(), y = b.parameters().values().span<float>();
  ASSERT_EQ(x.size(), y.size());
  EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin()));
}

TEST_P(ModelFiles, WeightsSurviveTheWayThroughACheckpointAndBack) {
  const LoadedModel original(describe_model(golden(GetParam())), DType::f32, exec);
  const fs::path checkpoint = scratch("checkpoint"), directory = scratch("huggingface");
  save_model_checkpoint(original, {.tokenizer_json = "{}"}, checkpoint, "{}");
  const ModelDescription description = describe_model(checkpoint);
  EXPECT_EQ(description.tokenizer_json, "{}");
  EXPECT_EQ(differences(description.config, original.config()), std::vector<std::string>());
  const LoadedModel from_checkpoint(description, DType::f32, exec);
  expect_equal_weights(original, from_checkpoint);
  save_hugging_face(from_checkpoint, {}, DType::f32, directory);
  const LoadedModel back(describe_model(directory), DType::f32, exec);
  expect_equal_weights(original, back);
  // The same tensors, bit for bit, as in the file that transformers wrote.
  const SafetensorsFile theirs(golden(GetParam()) / "model.safetensors"),
      ours(directory / "model.safetensors");
  ASSERT_EQ(theirs.entries().size(), ours.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    const SafetensorsEntry* other = ours.find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    EXPECT_EQ(entry.shape, other->shape);
    const auto x = theirs.bytes(entry), y = ours.bytes(*other);
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << entry.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ModelFiles, ::testing::Values("gpt2_tiny", "llama_tiny"));

// Found by tests/fuzz with sanitizers: the product of two sizes overflowed.
TEST(HuggingFaceConfig, RefusesAbsurdRotaryColumns) {
  std::string text = read_file(golden("families") / "gptj" / "config.json");
  const std::string key = "\"rotary_dim\": ";
  text.insert(text.find(key) + key.size(), "-922337203685477580");
  EXPECT_THROW(config_from_hugging_face(text, "config.json"), InputError);
}

TEST(HuggingFaceConfig, RefusesWhatCouldChangeTheNumbers) {
  const std::string good = read_file(golden("llama_tiny") / "config.json");
  EXPECT_NO_THROW(config_from_hugging_face(good, "config.json"));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const auto error = [&](const std::string& text) -> std::string {
    try {
      config_from_hugging_face(text, "config.json");
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(changed("\"eos_token_id\": ", "\"x\": " + std::string(200000, '[') +
                                                    std::string(200000, ']') + ", \"eos_token_id\": ")),
            "config.json: lists and objects are nested more than 256 deep");
  EXPECT_EQ(error(changed("\"model_type\": \"llama\"", "\"model_type\": \"mamba\"")),
            "config.json: model_type \"mamba\" is not known; known are " + family_names());
  EXPECT_EQ(
      error(changed("\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"")),
      "config.json: rope_parameters: the rotary scaling \"spiral\" is not supported; known are default, "
      "linear, dynamic, yarn, llama3 and longrope");
  EXPECT_EQ(error(changed("\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"")),
            "config.json: rope_parameters: \"factor\" is missing");
  EXPECT_EQ(error(changed("\"use_cache\"", "\"logit_scale\": 2.0, \"use_cache\"")),
            "config.json: \"logit_scale\" = 2.0 is not understood and could change the numbers");
  for (const char* field : {"hidden_size", "rms_norm_eps", "intermediate_size", "num_attention_heads",
                            "num_hidden_layers", "vocab_size", "max_position_embeddings", "hidden_act"}) {
    EXPECT_NE(error(changed(std::string("\"") + field + "\"", "\"use_cache\"")), "no error") << field;
  }
}

TEST(HuggingFaceConfig, ExportHoldsEveryChoice) {
  ModelConfig config = ModelConfig::defaults(ModelForm::llama);
  config.vocab_size = 77;
  config.hidden_size = 48;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_size = 10;
  config.ffn_hidden_size = 99;
  config.max_positions = 123;
  config.rope_base = 12345;
  config.norm_epsilon = 3e-6;
  config.activation = Activation::geglu_tanh;
  config.tied_embeddings = true;
  config.bias = true;
  config.num_layers = 2;
  config.resolve();
  const ModelConfig back =
      config_from_hugging_face(config_to_hugging_face(config, DType::f32, {}), "config.json");
  EXPECT_EQ(differences(back, config), std::vector<std::string>());
  ModelConfig odd = config;
  odd.norm = NormKind::layer;
  EXPECT_THROW(config_to_hugging_face(odd, DType::f32, {}), InputError);
}

TEST(ModelExtras, SettingsOfGenerationGoAlong) {
  Arena workspace("workspace");
  const ExecContext exec{workspace, 1};
  const LoadedModel model(describe_model(golden("llama_tiny")), DType::f32, exec);
  const ModelExtras extras{.end_of_text = {3, 5},
                           .generation_config = R"({"temperature": 0.6, "top_k": 20, "eos_token_id": 7})"};
  const fs::path checkpoint = scratch("settings_checkpoint"), directory = scratch("settings_hf");
  save_model_checkpoint(model, extras, checkpoint, "{}");
  const ModelDescription description = describe_model(checkpoint);
  EXPECT_EQ(description.end_of_text, (std::vector<int32_t>{3, 5}));
  save_hugging_face(
      model, {.end_of_text = description.end_of_text, .generation_config = description.generation_config},
      DType::f32, directory);
  const auto json = nlohmann::json::parse(read_file(directory / "generation_config.json"));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"temperature": 0.6, "top_k": 20, "eos_token_id": [3, 5]})"));
}

TEST(ModelPaths, ErrorsSayWhatThePathIsNot) {
  EXPECT_THROW(describe_model(scratch("missing")), InputError);
  const fs::path empty = scratch("empty");
  fs::create_directories(empty);
  EXPECT_THROW(describe_model(empty), InputError);
  write_file_atomic(empty / "file", "x");
  EXPECT_THROW(describe_model(empty / "file"), InputError);
}

}  // namespace
}  // namespace megalith
