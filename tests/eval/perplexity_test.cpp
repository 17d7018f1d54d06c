#include "megalith/eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "megalith/base/error.h"
#include "tests/model/scripted_model.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / "megalith-perplexity" / name;
  fs::remove_all(path);
  fs::create_directories(path.parent_path());
  return path;
}

// 256 tokens of one byte each, none special: byte b has id b.
std::string bytes_json() {
  ByteLevelVocabulary vocabulary = testing::byte_vocabulary();
  vocabulary.special_tokens.clear();
  return write_tokenizer_json(vocabulary);
}

ModelConfig small_config() {
  ModelConfig config = ModelConfig::defaults(ModelForm::gpt2);
  config.vocab_size = 256;
  config.num_layers = 2;
  config.hidden_size = 32;
  config.num_heads = 4;
  config.max_positions = 64;
  config.vocab_multiple = 8;
  config.resolve();
  return config;
}

struct Scene {
  explicit Scene(const fs::path& directory)
      : description(describe_model(directory)),
        tokenizer(Tokenizer::from_json(description.tokenizer_json)),
        model(description, DType::f32, exec) {}
  PerplexityResult measure(std::string_view text, int64_t window, int64_t stride, int64_t batch = 4) const {
    return perplexity(model, tokenizer, text, {.window = window, .stride = stride, .batch = batch}, exec);
  }

  Arena workspace{"workspace", 256u << 20};
  ExecContext exec{workspace, 2};
  ModelDescription description;
  Tokenizer tokenizer;
  LoadedModel model;
};

Scene random_scene(const ModelConfig& config = small_config()) {
  const fs::path directory = scratch("random");
  testing::write_random_model(directory, bytes_json(), config, 9);
  return Scene(directory);
}

std::string english(size_t bytes) {
  const std::string sentence = "In the beginning God created the heaven and the earth. ";
  std::string text;
  while (text.size() < bytes) text += sentence + std::to_string(text.size()) + "\n";
  text.resize(bytes);
  return text;
}

TEST(PerplexityWindows, ScoreEveryTokenButTheFirstOnceWithEnoughContext) {
  for (int64_t tokens = 0; tokens <= 40; ++tokens) {
    for (int64_t window = 1; window <= 12; ++window) {
      for (int64_t stride = 1; stride <= window; ++stride) {
        std::vector<int> scored(static_cast<size_t>(tokens), 0);
        const auto windows = perplexity_windows(tokens, {.window = window, .stride = stride, .batch = 1});
        for (size_t w = 0; w < windows.size(); ++w) {
          const auto [begin, length, first] = windows[w];
          ASSERT_GE(begin, 0);
          ASSERT_LE(length, window);
          ASSERT_LE(begin + length, tokens - 1);  // every input has a target
          ASSERT_LT(first, length);
          if (w > 0) {
            ASSERT_EQ(length, window) << "a later window is never short of context";
            ASSERT_LE(length - first, stride);
          } else {
            ASSERT_EQ(first, 0);
          }
          for (int64_t t = first; t < length; ++t) scored[static_cast<size_t>(begin + t + 1)] += 1;
        }
        for (int64_t t = 0; t < tokens; ++t) {
          ASSERT_EQ(scored[static_cast<size_t>(t)], t == 0 ? 0 : 1)
              << tokens << " tokens, window " << window << ", stride " << stride << ", token " << t;
        }
      }
    }
  }
}

TEST(PerplexityWindows, MegatronsProtocolByHand) {
  // Window 8, stride 3, 20 tokens: 19 targets = 8 + 3 + 3 + 3 + 2.
  const auto windows = perplexity_windows(20, {.window = 8, .stride = 3, .batch = 1});
  std::vector<std::vector<int64_t>> rows;
  for (const auto& w : windows) rows.push_back({w.begin, w.length, w.first_scored});
  EXPECT_EQ(rows,
            (std::vector<std::vector<int64_t>>{{0, 8, 0}, {3, 8, 5}, {6, 8, 5}, {9, 8, 5}, {11, 8, 6}}));
}

TEST(PerplexityWindows, RefuseWhatCannotBe) {
  EXPECT_THROW(perplexity_windows(10, {.window = 0, .stride = 1, .batch = 1}), InputError);
  EXPECT_THROW(perplexity_windows(10, {.window = 4, .stride = 0, .batch = 1}), InputError);
  EXPECT_THROW(perplexity_windows(10, {.window = 4, .stride = 5, .batch = 1}), InputError);
}

TEST(Perplexity, AUniformModelOverBytesHasEightBitsAByte) {
  const fs::path directory = scratch("zero");
  testing::write_model(directory, small_config(), bytes_json(), [](const std::string&, std::span<float>) {});
  const Scene scene(directory);
  const std::string text = english(301);
  for (const auto& [window, stride] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {64, 32}, {64, 1}, {17, 5}, {1, 1}, {2, 1}}) {
    const PerplexityResult result = scene.measure(text, window, stride);
    EXPECT_EQ(result.tokens, 300);
    EXPECT_EQ(result.bytes, 300);
    // A loss is rounded to fp32, half an ulp of 5.5 at most: 2.4e-7.
    EXPECT_NEAR(result.bits_per_byte(), 8.0, 8 * 2.4e-7) << "window " << window << ", stride " << stride;
    EXPECT_NEAR(result.token_perplexity(), 256, 256 * 2.4e-7 * 5.6);
  }
}

// -log p of the last of `ids`, with all before it as context, in a window of its own.
double last_loss(const Scene& scene, std::span<const int32_t> ids) {
  const int64_t n = static_cast<int64_t>(ids.size()) - 1;
  std::vector<int32_t> inputs(ids.begin(), ids.end() - 1), positions, targets(static_cast<size_t>(n), -1);
  for (int64_t t = 0; t < n; ++t) positions.push_back(static_cast<int32_t>(t));
  targets.back() = ids.back();
  TokenBatch batch;
  batch.batch = 1;
  batch.tokens = n;
  batch.token_ids = {inputs.data(), DType::i32, {n}};
  batch.positions = {positions.data(), DType::i32, {n}};
  batch.targets = {targets.data(), DType::i32, {n}};
  std::vector<float> losses(static_cast<size_t>(n));
  Arena arena("activations", 64u << 20);
  Saved saved(arena);
  scene.model.model().loss(Pass{scene.exec, batch, saved}, {losses.data(), DType::f32, {n}});
  return losses.back();
}

TEST(Perplexity, EqualsOneComputationAToken) {
  const Scene scene = random_scene();
  const std::string text = english(150);
  const std::vector<int32_t> ids = scene.tokenizer.encode(text);
  ASSERT_EQ(ids.size(), 150u);
  constexpr int64_t kWindow = 32;
  for (const int64_t stride : {kWindow, kWindow / 2, int64_t{7}, int64_t{1}}) {
    // Where the first token of each stride stands decides how far back the context goes.
    double expected = 0;
    for (int64_t target = 1; target < 150; ++target) {
      int64_t end = kWindow;  // the last target of the window that scores this one
      while (end < target) end = std::min<int64_t>(end + stride, 149);
      const int64_t begin = std::max<int64_t>(0, end - kWindow);
      expected += last_loss(
          scene, std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(target - begin + 1)));
    }
    for (const int64_t batch : {1, 4, 100}) {
      const PerplexityResult result = scene.measure(text, kWindow, stride, batch);
      // Sums of 149 fp32 losses of about 6, each a dozen operations deep.
      EXPECT_NEAR(result.negative_log_likelihood, expected, 1e-5 * expected)
          << "stride " << stride << ", batch " << batch;
      EXPECT_EQ(result.window, kWindow);
      EXPECT_EQ(result.stride, stride);
    }
  }
}

TEST(Perplexity, ATextShorterThanTheWindowIsOneWindow) {
  const Scene scene = random_scene();
  const std::string text = english(20);
  const double whole = scene.measure(text, 19, 19).negative_log_likelihood;
  EXPECT_EQ(scene.measure(text, 64, 1).negative_log_likelihood, whole);
  EXPECT_EQ(scene.measure(text, 64, 64).negative_log_likelihood, whole);
}

TEST(Perplexity, CountsWordsAndBytesOfTheOriginalText) {
  EXPECT_EQ(count_words(""), 0);
  EXPECT_EQ(count_words(" \t\r\n\v\f"), 0);
  EXPECT_EQ(count_words("one"), 1);
  EXPECT_EQ(count_words("  don't  count\ttwice,\n\n\u00e4 \u65e5\u672c "), 5);
  const Scene scene = random_scene();
  const std::string text = "a \u00e4b\n";
  const PerplexityResult result = scene.measure(text, 64, 64);
  EXPECT_EQ(result.words, 2);
  EXPECT_EQ(result.tokens, 5);  // six bytes, of which the first is not scored
  EXPECT_EQ(result.bytes, 5);
  EXPECT_DOUBLE_EQ(result.token_perplexity(), std::exp(result.negative_log_likelihood / 5));
  EXPECT_DOUBLE_EQ(result.word_perplexity(), std::exp(result.negative_log_likelihood / 2));
  EXPECT_DOUBLE_EQ(result.bits_per_byte(), result.negative_log_likelihood / std::numbers::ln2 / 5);
}

TEST(Perplexity, ReportsProgressToTheEnd) {
  const Scene scene = random_scene();
  std::vector<std::pair<int64_t, int64_t>> calls;
  perplexity(scene.model, scene.tokenizer, english(100), {.window = 16, .stride = 8, .batch = 2}, scene.exec,
             [&](int64_t done, int64_t all) { calls.emplace_back(done, all); });
  ASSERT_GT(calls.size(), 3u);
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_GT(calls[i].first, calls[i - 1].first);
  EXPECT_EQ(calls.back(), (std::pair<int64_t, int64_t>{99, 99}));
}

TEST(Perplexity, ErrorsNameWhatIsWrong) {
  const Scene scene = random_scene();
  const auto message = [&](std::string_view text, const PerplexityOptions& options) -> std::string {
    try {
      perplexity(scene.model, scene.tokenizer, text, options, scene.exec);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("", {.window = 8, .stride = 4, .batch = 1}),
            "the text has 0 tokens; perplexity needs two or more");
  EXPECT_EQ(message("a", {.window = 8, .stride = 4, .batch = 1}),
            "the text has 1 tokens; perplexity needs two or more");
  EXPECT_EQ(message("ab", {.window = 65, .stride = 4, .batch = 1}),
            "window 65 exceeds the model's 64 positions");
  EXPECT_EQ(message("ab", {.window = 8, .stride = 9, .batch = 1}),
            "stride 9 is out of range; allowed is 1 to the window, 8");
  EXPECT_EQ(message("ab", {.window = 8, .stride = 4, .batch = 0}),
            "batch 0 is out of range; allowed is 1 or more");
  ModelConfig encoder = small_config();
  encoder.causal = false;
  EXPECT_THROW(random_scene(encoder).measure("abc", 8, 4), InputError);
  const Tokenizer larger = Tokenizer::from_json(write_tokenizer_json(testing::byte_vocabulary()));
  EXPECT_THROW(perplexity(scene.model, larger, "ab", {.window = 8, .stride = 4, .batch = 1}, scene.exec),
               InputError);
}

TEST(UnigramPerplexity, IsCountsWithOneAdded) {
  const Tokenizer tokenizer = Tokenizer::from_json(bytes_json());
  std::vector<int64_t> counts(256, 0);
  counts['a'] = 3;
  counts['b'] = 1;
  const PerplexityResult result = unigram_perplexity(counts, tokenizer, "aab c");
  // Scored: a, b, space, c, of 4 counted tokens and 256 added.
  const double expected = -(std::log(4.0 / 260) + std::log(2.0 / 260) + 2 * std::log(1.0 / 260));
  EXPECT_NEAR(result.negative_log_likelihood, expected, 1e-12);
  EXPECT_EQ(result.tokens, 4);
  EXPECT_EQ(result.words, 2);
  EXPECT_EQ(result.bytes, 4);
  // Nothing counted: uniform.
  EXPECT_NEAR(unigram_perplexity(std::vector<int64_t>(256, 0), tokenizer, english(50)).bits_per_byte(), 8,
              1e-12);
  EXPECT_THROW(unigram_perplexity(std::vector<int64_t>(10, 1), tokenizer, "aab"), InputError);
  EXPECT_THROW(unigram_perplexity(counts, tokenizer, "a"), InputError);
}

// A tokenizer that begins texts with a token of its own: every token of the text is scored, and every window
// begins so, which makes windows of a whole stride texts of their own.
TEST(Perplexity, EveryWindowBeginsAsTextsDo) {
  nlohmann::json json = nlohmann::json::parse(bytes_json());
  json["added_tokens"] = {{{"id", 256}, {"content", "<s>"}, {"special", true}}};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", nlohmann::json::array()},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}}}}};
  ModelConfig config = small_config();
  config.vocab_size = 257;
  const fs::path directory = scratch("begins");
  testing::write_random_model(directory, json.dump(), config, 9);
  const Scene scene(directory);
  ASSERT_EQ(scene.tokenizer.beginning_of_text(), 256);
  const std::string text = english(24);
  const PerplexityResult whole = scene.measure(text, 8, 8);
  EXPECT_TRUE(whole.begins_with_special);
  EXPECT_EQ(whole.tokens, 24);
  EXPECT_EQ(whole.bytes, 24);
  double sum = 0;
  for (const size_t at : {0, 8, 16}) sum += scene.measure(text.substr(at, 8), 8, 8).negative_log_likelihood;
  EXPECT_NEAR(whole.negative_log_likelihood, sum, 1e-4);
}

// Weights that stay in their files give the same numbers, tied and untied.
TEST(Perplexity, WeightsAsStoredGiveTheSameBits) {
  for (const bool tied : {true, false}) {
    ModelConfig config = small_config();
    config.tied_embeddings = tied;
    const Scene scene = random_scene(config);
    const LoadedModel stored(scene.description, DType::f32, scene.exec, WeightForm::as_stored);
    const std::string text = english(200);
    const PerplexityOptions options{.window = 40, .stride = 20};
    EXPECT_EQ(perplexity(stored, scene.tokenizer, text, options, scene.exec).negative_log_likelihood,
              perplexity(scene.model, scene.tokenizer, text, options, scene.exec).negative_log_likelihood);
  }
}

}  // namespace
}  // namespace megalith
