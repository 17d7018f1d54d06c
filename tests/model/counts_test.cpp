#include "megalith/model/counts.h"

#include <gtest/gtest.h>

#include "megalith/base/error.h"

namespace megalith {
namespace {

ModelConfig paper_model(int64_t layers, int64_t hidden, int64_t heads, int64_t positions) {
  ModelConfig config;
  config.num_layers = layers;
  config.hidden_size = hidden;
  config.num_heads = heads;
  config.max_positions = positions;
  config.vocab_size = 51200;
  config.resolve();
  return config;
}

TEST(Counts, AreThoseOfMegatronLm) {
  // Shoeybi et al. 2019, table 1, in billions as printed there.
  EXPECT_NEAR(static_cast<double>(count_parameters(paper_model(40, 1536, 16, 1024))) / 1e9, 1.2, 0.05);
  EXPECT_NEAR(static_cast<double>(count_parameters(paper_model(54, 1920, 20, 1024))) / 1e9, 2.5, 0.05);
  EXPECT_NEAR(static_cast<double>(count_parameters(paper_model(64, 2304, 24, 1024))) / 1e9, 4.2, 0.05);
  EXPECT_NEAR(static_cast<double>(count_parameters(paper_model(72, 3072, 32, 1024))) / 1e9, 8.3, 0.05);
}

TEST(Counts, AreThoseOfMtNlg) {
  // Smith et al. 2022: 105 layers, 20480, 128 heads.
  EXPECT_NEAR(static_cast<double>(count_parameters(paper_model(105, 20480, 128, 2048))) / 1e9, 529.6, 0.05);
}

TEST(Counts, FollowTheClosedForm) {
  // 12 L h^2 (1 + 13/(12 h)) + (V + s) h + 2 h for the final norm.
  const int64_t l = 7, h = 96, v = 51200, s = 128;
  EXPECT_EQ(count_parameters(paper_model(l, h, 8, s)), 12 * l * h * h + 13 * l * h + (v + s) * h + 2 * h);
}

TEST(Counts, PartsAddUpAndPaddingCountsOnlyWhenAsked) {
  ModelConfig config;
  config.vocab_size = 50257;
  config.resolve();
  EXPECT_EQ(count_parameters(config), 124439808);  // GPT-2 small
  EXPECT_EQ(count_parameters(config, true) - count_parameters(config), (50304 - 50257) * 768);
  int64_t total = 0;
  for (const PartCount& part : count_parts(config)) total += part.parameters;
  EXPECT_EQ(total, 124439808);
}

TEST(Counts, FlopsAreThoseOfNarayananEtAl) {
  // 72 B s l h^2 (1 + s/(6h) + V/(12 l h)) for a step without recompute (their 96 B s l h^2 (...) with it).
  const double l = 24, h = 1024, v = 51200, s = 2048;
  const double per_token = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  EXPECT_NEAR(3 * forward_flops_per_token(paper_model(24, 1024, 16, 2048), 2048) / per_token, 1, 1e-12);
}

TEST(Counts, AreThoseOfRealModels) {
  // Gemma 3 270M, as its model card and transformers count it: 268,098,176.
  ModelConfig gemma = ModelConfig::defaults(ModelForm::gemma3);
  gemma.vocab_size = 262144;
  gemma.num_layers = 18;
  gemma.hidden_size = 640;
  gemma.num_heads = 4;
  gemma.num_kv_heads = 1;
  gemma.head_size = 256;
  gemma.ffn_hidden_size = 2048;
  gemma.resolve();
  EXPECT_EQ(count_parameters(gemma), 268098176);
  // A window bounds what a token sees: 15 of 18 layers have one of 512.
  ModelConfig no_window = gemma;
  no_window.window = 0;
  EXPECT_EQ(forward_flops_per_token(no_window, 4096) - forward_flops_per_token(gemma, 4096),
            4.0 * 15 * (4096 - 512) * 4 * 256);
  EXPECT_EQ(forward_flops_per_token(no_window, 300), forward_flops_per_token(gemma, 300));
  // BERT base without a head: 109,482,240 with its pooler, which no token's forward pass counts.
  ModelConfig bert = ModelConfig::defaults(ModelForm::bert);
  bert.vocab_size = 30522;
  bert.max_positions = 512;
  bert.head = HeadKind::none;
  bert.head_bias = false;
  bert.pooler = true;
  bert.resolve();
  EXPECT_EQ(count_parameters(bert), 109482240);
  int64_t total = 0;
  for (const PartCount& part : count_parts(bert)) {
    total += part.parameters;
    if (part.part == "token type embedding") {
      EXPECT_EQ(part.parameters, 2 * 768);
    } else if (part.part == "pooler") {
      EXPECT_EQ(part.parameters, 768 * 769);
    }
  }
  EXPECT_EQ(total, 109482240);
  EXPECT_EQ(forward_flops_per_token(bert, 100), 2.0 * 12 * (12 * 768 * 768 + 2 * 100 * 768));
}

TEST(ModelConfig, RefusesWhatCannotBeBuilt) {
  ModelConfig config;
  config.vocab_size = 10;
  config.hidden_size = 10;
  config.num_heads = 3;
  EXPECT_THROW(config.resolve(), InputError);
  config = ModelConfig();
  EXPECT_THROW(config.resolve(), InputError);  // no vocabulary
  config.vocab_size = 10;
  config.num_kv_heads = 5;
  EXPECT_THROW(config.resolve(), InputError);
  config = ModelConfig::defaults(ModelForm::llama);
  config.vocab_size = 10;
  config.head_size = 5;
  EXPECT_THROW(config.resolve(), InputError);  // odd number of rotating columns
}

}  // namespace
}  // namespace megalith
