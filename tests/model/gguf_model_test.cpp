#include "megalith/model/gguf_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/model_files.h"
#include "megalith/text/bpe_trainer.h"
#include "megalith/text/tokenizer.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("megalith-gguf-model-{}", ::getpid());
  fs::create_directories(folder);
  return folder / name;
}

class GgufModel : public ::testing::Test {
 protected:
  ~GgufModel() override { fs::remove_all(scratch("").parent_path()); }

  static fs::path golden(const std::string& name) {
    return fs::path(std::getenv("MEGALITH_TEST_DATA")) / "golden" / name;
  }
  std::string error_of(const fs::path& path) {
    try {
      const LoadedModel model(describe_model(path), DType::f32, exec);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }

  Arena workspace{"workspace", 64u << 20};
  ExecContext exec{workspace, 2};
};

std::vector<const Parameter*> all_of(Transformer& model) {
  std::vector<const Parameter*> all;
  model.walk([&](Parameter& parameter) { all.push_back(&parameter); });
  return all;
}

// 8 heads and 2 for keys and values: with as many groups as heads in one, a wrong permutation would hide.
ModelConfig llama_config() {
  ModelConfig config = ModelConfig::defaults(ModelForm::llama);
  config.vocab_size = 300;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_size = 8;
  config.ffn_hidden_size = 96;
  config.max_positions = 60;
  config.resolve();
  return config;
}

// Hugging Face -> GGUF in fp32 -> back: every weight is the same, bit for bit.
TEST_F(GgufModel, WeightsSurviveTheWayThroughGguf) {
  for (const char* form : {"gpt2_tiny", "llama_tiny"}) {
    const LoadedModel original(describe_model(golden(form)), DType::f32, exec);
    const fs::path path = scratch(std::string(form) + ".gguf");
    save_gguf(original.config(), original.all_parameters(), GgufType::f32, {}, exec, path);
    const ModelDescription description = describe_model(path);
    EXPECT_EQ(description.kind, ModelFileKind::gguf);
    const LoadedModel back(description, DType::f32, exec);
    const auto x = original.parameters().values().span<float>(), y = back.parameters().values().span<float>();
    ASSERT_EQ(x.size(), y.size());
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin())) << form;
    // Norms and sizes too: the same losses follow.
    EXPECT_EQ(back.config().num_kv_heads, original.config().num_kv_heads);
    EXPECT_FLOAT_EQ(static_cast<float>(back.config().norm_epsilon),
                    static_cast<float>(original.config().norm_epsilon));
    EXPECT_FLOAT_EQ(static_cast<float>(back.config().rope_base),
                    static_cast<float>(original.config().rope_base));
  }
}

// llama.cpp keeps the rows of a head's two rotating halves interleaved: row 2 i + j of the file is row j D/2
// + i.
TEST_F(GgufModel, RowsOfRotatingHeadsAreInterleaved) {
  const ModelConfig config = llama_config();
  Transformer model(config);
  Arena arena("weights");
  const ParameterBuffers parameters([&](const ParameterVisitor& visitor) { model.walk(visitor); }, DType::f32,
                                    arena, nullptr);
  for (const ParameterSlot& slot : parameters.slots()) {
    if (slot.parameter->name != "layers.1.attention.query_key_value.weight") continue;
    for (int64_t row = 0; row < slot.parameter->shape[0]; ++row) {
      for (int64_t i = 0; i < 64; ++i)
        slot.parameter->value.data<float>()[row * 64 + i] = static_cast<float>(row);
    }
  }
  const fs::path path = scratch("rows.gguf");
  save_gguf(config, all_of(model), GgufType::f32, {}, exec, path);
  const GgufFile file(path);
  const auto rows = [&](const char* name) {
    const auto bytes = file.bytes(*file.find_tensor(name));
    std::vector<int> result;
    for (size_t row = 0; row * 64 * 4 < bytes.size(); ++row) {
      float value;
      std::memcpy(&value, bytes.data() + row * 64 * 4, 4);
      result.push_back(static_cast<int>(value));
    }
    return result;
  };
  const auto q = rows("blk.1.attn_q.weight"), k = rows("blk.1.attn_k.weight"),
             v = rows("blk.1.attn_v.weight");
  ASSERT_EQ(q.size(), 64u);
  ASSERT_EQ(k.size(), 16u);
  EXPECT_EQ(std::vector<int>(q.begin() + 8, q.begin() + 16),
            (std::vector<int>{8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_EQ(std::vector<int>(k.begin() + 8, k.end()), (std::vector<int>{72, 76, 73, 77, 74, 78, 75, 79}));
  EXPECT_EQ(v.front(), 80);
  EXPECT_EQ(v.back(), 95);
}

// Weights of the LLaMA form, drawn as training draws them.
struct RandomModel {
  explicit RandomModel(const ExecContext& exec) {
    initialize_parameters(exec, parameters.slots(), 3, {0, parameters.elements()}, parameters.values());
  }

  ModelConfig config = llama_config();
  Transformer model{config};
  Arena arena{"weights"};
  ParameterBuffers parameters{[this](const ParameterVisitor& visitor) { model.walk(visitor); }, DType::f32,
                              arena, nullptr};
};

TEST_F(GgufModel, QuantisedWeightsAreNear) {
  RandomModel original(exec);
  // An eighth of a step of 1/127 or 1/8 of the largest weight of 32, about 2.2 deviations, is what rounding
  // costs.
  const std::pair<GgufType, double> types[] = {
      {GgufType::bf16, 0.003}, {GgufType::f16, 0.0004}, {GgufType::q8_0, 0.008}, {GgufType::q4_0, 0.1}};
  for (const auto& [type, bound] : types) {
    const fs::path path = scratch("quantised.gguf");
    save_gguf(original.config, all_of(original.model), type, {}, exec, path);
    const LoadedModel back(describe_model(path), DType::f32, exec);
    const auto x = original.parameters.values().span<float>(), y = back.parameters().values().span<float>();
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 1) continue;  // norms are exact
      error += (x[i] - y[i]) * (x[i] - y[i]);
      size += x[i] * x[i];
    }
    EXPECT_LT(std::sqrt(error / size), bound) << name(type);
    EXPECT_GT(error, 0) << name(type);
  }
}

TEST_F(GgufModel, WhatDoesNotFitLeavesNoFile) {
  RandomModel model(exec);
  const fs::path path = scratch("unfit.gguf");
  const auto refused = [&](GgufType type) {
    EXPECT_THROW(save_gguf(model.config, all_of(model.model), type, {}, exec, path), InputError);
    EXPECT_FALSE(fs::exists(path));
    EXPECT_FALSE(fs::exists(path.string() + ".partial"));
  };
  refused(GgufType::q6_k);
  model.parameters.values().data<float>()[5] = 1e6f;  // more than fp16 holds
  refused(GgufType::f16);
  model.parameters.values().data<float>()[5] = std::nanf("");
  refused(GgufType::q8_0);
  refused(GgufType::f32);
}

// A tokenizer that goes into a GGUF file and comes out encodes the same.
TEST_F(GgufModel, TokenizersSurviveTheWayThroughGguf) {
  const LoadedModel model(describe_model(golden("llama_tiny")), DType::f32, exec);
  for (const char* pattern : {"gpt2", "llama3", "qwen2"}) {
    BpeTrainer trainer(
        {.vocabulary_size = 280, .special_tokens = {"<|endoftext|>", "<|turn|>"}, .pattern = pattern});
    const std::vector<std::string_view> texts = {
        "the quick brown fox jumps over the lazy dog, the dog barks 12345 times"};
    trainer.add_documents(texts);
    const Tokenizer tokenizer = trainer.train();
    const fs::path path = scratch("tokenizer.gguf");
    {
      GgufWriter writer(path);
      writer.add("general.architecture", "llama");
      add_tokenizer_to_gguf(tokenizer, 300, {1, 0}, writer);
      writer.finish();
    }
    const GgufFile file(path);
    EXPECT_EQ(end_of_text_ids(file), (std::vector<int32_t>{1, 0}));
    const Tokenizer back = Tokenizer::from_json(tokenizer_from_gguf(file)->to_json());
    const std::string text = "The dog's 987 foxes\n\n  jumped<|endoftext|> — 你好 ١٢٣!";
    EXPECT_EQ(back.encode(text), tokenizer.encode(text)) << pattern;
    EXPECT_EQ(back.encode(text, true), tokenizer.encode(text, true)) << pattern;
    EXPECT_EQ(back.decode(back.encode(text)), text);
  }
}

// SentencePiece's BPE: the best score is joined first, and special tokens are text unless asked for.
TEST_F(GgufModel, SentencePieceTokenizers) {
  const std::vector<std::string> tokens = {"<unk>", "<s>",    "</s>",    "a",     "b",
                                           "ab",    "\u2581", "\u2581a", "<turn>"};
  std::vector<float> scores = {0, 0, 0, -5, -6, -2, -7, -1, 0};
  std::vector<std::string> all = tokens;
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 4};
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
    scores.push_back(0);
  }
  const fs::path path = scratch("sentencepiece.gguf");
  {
    GgufWriter writer(path);
    writer.add("general.architecture", "llama");
    writer.add("tokenizer.ggml.model", "llama");
    writer.add("tokenizer.ggml.tokens", std::span<const std::string>(all));
    writer.add("tokenizer.ggml.scores", std::span<const float>(scores));
    writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
    writer.add("tokenizer.ggml.bos_token_id", uint32_t{1});
    writer.finish();
  }
  const Tokenizer tokenizer = *tokenizer_from_gguf(GgufFile(path));
  const int32_t byte = static_cast<int32_t>(tokens.size());
  using Ids = std::vector<int32_t>;
  // The space joins its letter before that one joins the next; behind a token a text begins anew.
  EXPECT_EQ(tokenizer.encode("ab ab"), (Ids{7, 4, 7, 4}));
  EXPECT_EQ(tokenizer.encode("bab"), (Ids{6, 4, 5}));
  EXPECT_EQ(tokenizer.encode("a<turn>b", EncodeOptions{.add_special = true}), (Ids{1, 7, 8, 6, 4}));
  EXPECT_EQ(tokenizer.encode("</s>", true), (Ids{2}));
  EXPECT_EQ(tokenizer.encode("\xC3\xA9"), (Ids{6, byte + 0xC3, byte + 0xA9}));
  EXPECT_EQ(tokenizer.encode("</s>").size(), 5u);
  for (const std::string text : {"ab ab", " a  b", "\xC3\xA9\n", "\xFF"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  const Tokenizer written = Tokenizer::from_json(tokenizer.to_json());
  for (const std::string text : {"ab ab", "bab", " a<turn>  b", "é"})
    EXPECT_EQ(written.encode(text), tokenizer.encode(text)) << text;
}

// The file marks the begin of words, tokenizer.json what continues them.
TEST_F(GgufModel, WordPieceTokenizers) {
  const std::vector<std::string> tokens = {"[PAD]",     "[UNK]", "[CLS]",   "[SEP]",
                                           "\u2581the", "s",     "\u2581s", "\u2581,"};
  const std::vector<int32_t> types = {3, 2, 3, 3, 1, 1, 1, 1};
  const fs::path path = scratch("wordpiece.gguf");
  {
    GgufWriter writer(path);
    writer.add("general.architecture", "bert");
    writer.add("tokenizer.ggml.model", "bert");
    writer.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
    writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
    writer.add("tokenizer.ggml.unknown_token_id", uint32_t{1});
    writer.add("tokenizer.ggml.cls_token_id", uint32_t{2});
    writer.add("tokenizer.ggml.seperator_token_id", uint32_t{3});
    writer.finish();
  }
  const Tokenizer tokenizer = *tokenizer_from_gguf(GgufFile(path));
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(tokenizer.encode("Thes, S x", EncodeOptions{.add_special = true}), (Ids{2, 4, 5, 7, 6, 1, 3}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 5, 7}), "thes ,");
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).encode("thes s"), (Ids{4, 5, 6}));
}

TEST_F(GgufModel, WhatIsNotUnderstoodIsRefused) {
  const auto write = [&](const std::string& name, const std::function<void(GgufWriter&)>& add,
                         const std::string& architecture = "llama") {
    const fs::path path = scratch(name);
    GgufWriter writer(path);
    writer.add("general.architecture", architecture);
    add(writer);
    writer.finish();
    return path;
  };
  EXPECT_NE(error_of(write(
                         "a", [](GgufWriter&) {}, "mamba"))
                .find("\"mamba\" is not known; known are gpt2, llama, "),
            std::string::npos);
  EXPECT_NE(error_of(write("b", [](GgufWriter&) {})).find("\"llama.block_count\" is missing"),
            std::string::npos);
  const auto sizes = [](GgufWriter& w) {
    for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                            "attention.head_count"}) {
      w.add(std::string("llama.") + key, uint32_t{4});
    }
    w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  };
  EXPECT_NE(error_of(write("c",
                           [&](GgufWriter& w) {
                             sizes(w);
                             w.add("llama.expert_count", uint32_t{8});
                           }))
                .find("\"llama.expert_count\" is not understood and could change the numbers"),
            std::string::npos);
  EXPECT_NE(error_of(write("d",
                           [&](GgufWriter& w) {
                             sizes(w);
                             w.add("llama.rope.scaling.type", "spiral");
                           }))
                .find("\"rope.scaling.type\" = spiral is not supported"),
            std::string::npos);
  // A tokenizer whose way of cutting words is not named is not guessed.
  const auto tokenizer_error = [&](const char* pre) {
    const fs::path path = write("t", [&](GgufWriter& w) {
      w.add("tokenizer.ggml.model", "gpt2");
      if (pre != nullptr) w.add("tokenizer.ggml.pre", pre);
    });
    try {
      tokenizer_from_gguf(GgufFile(path));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(tokenizer_error(nullptr).find("\"tokenizer.ggml.pre\" is missing"), std::string::npos);
  EXPECT_NE(tokenizer_error("").find("\"tokenizer.ggml.pre\" is missing"), std::string::npos);
  EXPECT_NE(tokenizer_error("new").find("\"new\" is not known; known are gpt-2"), std::string::npos);
}

}  // namespace
}  // namespace megalith
