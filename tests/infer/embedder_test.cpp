#include "megalith/infer/embedder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// Words w3 .. w66 with the ids of their numbers, between [CLS] and [SEP].
std::string word_tokenizer() {
  std::string vocabulary = R"("[UNK]": 0, "[CLS]": 1, "[SEP]": 2)";
  for (int i = 3; i < 67; ++i) vocabulary += ", \"w" + std::to_string(i) + "\": " + std::to_string(i);
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}, "decoder": null,
    "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {)" +
         vocabulary + "}}}";
}

class EmbedderTest : public ::testing::Test {
 protected:
  Arena workspace{"workspace"};
  const ExecContext exec{workspace, 2};
  const LoadedModel model{
      describe_model(fs::path(std::getenv("MEGALITH_TEST_DATA")) / "golden" / "families" / "bert_model"),
      DType::f32, exec};
  const Tokenizer tokenizer = Tokenizer::from_json(word_tokenizer());

  std::vector<float> embed(const std::vector<std::string>& texts, const EmbedOptions& options = {}) const {
    return Embedder(model, tokenizer, exec, options).embed(texts);
  }
  // Hidden states of one text alone.
  std::vector<float> hidden(std::vector<int32_t> ids) const {
    const int64_t n = static_cast<int64_t>(ids.size()), c = model.config().hidden_size;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(i));
    TokenBatch batch;
    batch.batch = 1;
    batch.tokens = n;
    batch.token_ids = {ids.data(), DType::i32, {n}};
    batch.positions = {positions.data(), DType::i32, {n}};
    Tensor out(DType::f32, {n, c});
    model.model().encode(exec, batch, out);
    return {out.data<float>(), out.data<float>() + n * c};
  }
};

TEST_F(EmbedderTest, PoolsTheStatesOfEachText) {
  const size_t c = static_cast<size_t>(model.config().hidden_size);
  const std::vector<float> states = hidden({1, 5, 60, 7, 2});
  EmbedOptions options;
  options.normalize = false;
  const auto expect_near = [&](const std::vector<float>& got, const auto& want) {
    ASSERT_EQ(got.size(), c);
    for (size_t i = 0; i < c; ++i) EXPECT_NEAR(got[i], want(i), 1e-6) << i;
  };
  const auto mean = [&](size_t i) {
    float sum = 0;
    for (size_t t = 0; t < 5; ++t) sum += states[t * c + i] / 5;
    return sum;
  };
  expect_near(embed({"w5 w60 w7"}, options), mean);
  options.pooling = Pooling::first;
  expect_near(embed({"w5 w60 w7"}, options), [&](size_t i) { return states[i]; });
  options.pooling = Pooling::last;
  expect_near(embed({"w5 w60 w7"}, options), [&](size_t i) { return states[4 * c + i]; });
  const std::vector<float> unit = embed({"w5 w60 w7"});
  double squares = 0;
  for (const float x : unit) squares += static_cast<double>(x) * x;
  EXPECT_NEAR(squares, 1, 1e-6);
}

TEST_F(EmbedderTest, AVectorDoesNotDependOnTheOtherTexts) {
  std::vector<std::string> texts;
  for (int i = 0; i < 90; ++i) {
    std::string text = "w" + std::to_string(3 + i % 60);
    for (int j = 0; j < i % 25; ++j) text += " w" + std::to_string(3 + (i * 7 + j * 5) % 64);
    texts.push_back(text);
  }
  const std::vector<float> together = embed(texts);
  const size_t c = static_cast<size_t>(model.config().hidden_size);
  for (const size_t i : {size_t{0}, size_t{24}, size_t{55}, size_t{89}}) {
    const std::vector<float> alone = embed({texts[i]});
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + i * c, c * sizeof(float)), 0) << i;
  }
}

TEST_F(EmbedderTest, LongTextsAreCutBeforeWhatEndsThem) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "w9 ";
  EmbedOptions options;
  options.max_tokens = 6;
  Embedder embedder(model, tokenizer, exec, options);
  EXPECT_EQ(embedder.embed({text}), embed({"w9 w9 w9 w9"}));
  EXPECT_EQ(embedder.cut(), 1);
  options.max_tokens = 33;  // one more than the model's positions
  EXPECT_THROW(Embedder(model, tokenizer, exec, options), InputError);
}

}  // namespace
}  // namespace megalith
