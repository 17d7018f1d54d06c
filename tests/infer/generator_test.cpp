#include "megalith/infer/generator.h"

#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "tests/model/scripted_model.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// Bytes as tokens, and pieces that no merge makes: encoding never gives them, a model can. The "unused" id at
// the end has no token.
struct Vocabulary {
  ByteLevelVocabulary bytes = testing::byte_vocabulary();
  int32_t add(const std::string& piece) {
    bytes.pieces.push_back(piece);
    return static_cast<int32_t>(bytes.special_tokens.size() + bytes.pieces.size()) - 1;
  }
  std::string json() const { return write_tokenizer_json(bytes); }
  int64_t size() const { return static_cast<int64_t>(bytes.special_tokens.size() + bytes.pieces.size()); }
};

constexpr int32_t kEnd = 0;
int32_t byte(char c) {
  return static_cast<int32_t>(static_cast<unsigned char>(c)) + 1;
}

fs::path scratch(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / "megalith-generator" / name;
  fs::remove_all(path);
  fs::create_directories(path.parent_path());
  return path;
}

struct Scene {
  explicit Scene(const fs::path& directory, int threads = 2)
      : exec{workspace, threads},
        description(describe_model(directory)),
        tokenizer(Tokenizer::from_json(description.tokenizer_json)),
        model(description, DType::f32, exec),
        generator(model, tokenizer, exec) {}

  Generation generate(const std::string& prompt, const GenerateOptions& options) {
    parts.clear();
    return generator.generate(prompt, options, [this](std::string_view text) { parts.emplace_back(text); });
  }
  // What streaming promises, and the result without it.
  void expect_streams(const std::string& prompt, const GenerateOptions& options) {
    const Generation streamed = generate(prompt, options);
    std::string joined;
    for (const std::string& part : parts) {
      EXPECT_TRUE(is_valid_utf8(part)) << "a part that is not whole characters";
      EXPECT_FALSE(part.empty());
      joined += part;
    }
    EXPECT_EQ(joined, streamed.text);
    const Generation whole = generator.generate(prompt, options);
    EXPECT_EQ(whole.text, streamed.text);
    EXPECT_EQ(whole.token_ids, streamed.token_ids);
    EXPECT_EQ(whole.finish_reason, streamed.finish_reason);
  }

  Arena workspace{"workspace", 256u << 20};
  ExecContext exec;
  ModelDescription description;
  Tokenizer tokenizer;
  LoadedModel model;
  Generator generator;
  std::vector<std::string> parts;
};

// A scene whose model says `script`, beginning after the one byte that the prompt "x" is.
Scene scripted(const Vocabulary& vocabulary, const std::vector<int32_t>& script) {
  const fs::path directory = scratch("scripted");
  testing::write_scripted_model(directory, vocabulary.json(), vocabulary.size(), script);
  return Scene(directory);
}

GenerateOptions greedy(std::vector<std::string> stop = {}) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.stop = std::move(stop);
  return options;
}

std::vector<int32_t> repeated(int32_t id, size_t count) {
  return std::vector<int32_t>(count, id);
}

TEST(Generator, SaysTheScriptAndEndsAtTheEndToken) {
  Vocabulary vocabulary;
  const int32_t red = vocabulary.add("red "), green = vocabulary.add("green "), blue = vocabulary.add("blue");
  Scene scene = scripted(vocabulary, {red, green, blue, kEnd, red, red, red, red});
  const Generation result = scene.generate("x", greedy());
  EXPECT_EQ(result.prompt_ids, (std::vector<int32_t>{byte('x')}));
  EXPECT_EQ(result.token_ids, (std::vector<int32_t>{red, green, blue}));
  EXPECT_EQ(result.text, "red green blue");
  EXPECT_EQ(result.finish_reason, "stop");
  EXPECT_EQ(scene.parts, (std::vector<std::string>{"red ", "green ", "blue"}));

  GenerateOptions on = greedy();
  on.ignore_end = true;
  const Generation longer = scene.generate("x", on);
  EXPECT_EQ(longer.token_ids, (std::vector<int32_t>{red, green, blue, kEnd, red, red, red, red}));
  EXPECT_EQ(longer.text, "red green bluered red red red ");  // a special token has no text
  EXPECT_EQ(longer.finish_reason, "length");
}

TEST(Generator, StopStringsEndTheTextAndNothingOfThemIsShown) {
  Vocabulary vocabulary;
  std::vector<int32_t> script;
  for (const char* piece : {"1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7.", "advanced"})
    script.push_back(vocabulary.add(piece));
  Scene scene = scripted(vocabulary, script);
  const auto text = [&](std::vector<std::string> stop) {
    const GenerateOptions options = greedy(std::move(stop));
    scene.expect_streams("x", options);
    const Generation result = scene.generate("x", options);
    return result.text + "|" + result.finish_reason;
  };
  EXPECT_EQ(text({"4 5 6"}), "1 2 3 |stop");
  EXPECT_EQ(text({"3 "}), "1 2 |stop");
  EXPECT_EQ(text({"4 5", "4 5 6 7."}), "1 2 3 |stop");
  EXPECT_EQ(text({"dvance"}), "1 2 3 4 5 6 7.a|stop");
  EXPECT_EQ(text({"1"}), "|stop");
  EXPECT_EQ(text({"advanced course"}), "1 2 3 4 5 6 7.advanced|length");  // held back, then given
  std::vector<std::string> many;
  for (int i = 0; i < 99; ++i) many.push_back("no " + std::to_string(i));
  many.push_back("6 7");
  EXPECT_EQ(text(many), "1 2 3 4 5 |stop");
  EXPECT_THROW(scene.generate("x", greedy({""})), InputError);
  EXPECT_THROW(scene.generate("x", greedy({"\xF0\x9F"})), InputError);
}

TEST(Generator, HeldBackTextComesWhenMaxTokensEndsTheText) {
  Vocabulary vocabulary;
  const int32_t blue = vocabulary.add("blue"), newline = vocabulary.add("?\n");
  Scene scene = scripted(vocabulary, {blue, newline, blue, blue});
  GenerateOptions options = greedy({"blue?\nZZZZ"});
  options.max_tokens = 2;
  const Generation result = scene.generate("x", options);
  EXPECT_EQ(result.text, "blue?\n");
  EXPECT_EQ(result.finish_reason, "length");
  EXPECT_EQ(scene.generate("x", greedy({"\n"})).text, "blue?");
}

TEST(Generator, AFullContextEndsWithReasonLength) {
  Vocabulary vocabulary;
  Scene scene = scripted(vocabulary, repeated(byte('a'), 32));
  GenerateOptions options = greedy();
  options.max_tokens = std::numeric_limits<int64_t>::max();  // a model that never ends, unlimited length
  for (const size_t prompt : {1u, 30u, 31u, 32u}) {
    const Generation result = scene.generate(std::string(prompt, 'p'), options);
    // The last token needs no place in the context.
    EXPECT_EQ(result.token_ids.size(), 33 - prompt);
    EXPECT_EQ(result.text, std::string(33 - prompt, 'a'));
    EXPECT_EQ(result.finish_reason, "length");
  }
  for (const size_t prompt : {33u, 10000u}) {
    try {
      scene.generate(std::string(prompt, 'p'), options);
      FAIL() << "a prompt of " << prompt << " tokens went into a context of 32";
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()),
                "the prompt has " + std::to_string(prompt) + " tokens; the model's context holds 32");
    }
  }
}

TEST(Generator, MaxTokensBoundsTheNewTokens) {
  Vocabulary vocabulary;
  Scene scene = scripted(vocabulary, repeated(byte('a'), 16));
  GenerateOptions options = greedy();
  for (const int64_t most : {0, 1, 5}) {
    options.max_tokens = most;
    const Generation result = scene.generate("xy", options);
    EXPECT_EQ(static_cast<int64_t>(result.token_ids.size()), most);
    EXPECT_EQ(result.finish_reason, "length");
    EXPECT_EQ(scene.parts.size(), static_cast<size_t>(most));
  }
  options.max_tokens = -1;
  EXPECT_THROW(scene.generate("xy", options), InputError);
}

TEST(Generator, AnEmptyPromptBeginsWithTheDocumentTokenOrIsRefused) {
  Vocabulary vocabulary;
  Scene scene = scripted(vocabulary, {byte('h'), byte('i'), kEnd, kEnd});
  const Generation result = scene.generate("", greedy());
  EXPECT_EQ(result.prompt_ids, (std::vector<int32_t>{kEnd}));
  EXPECT_EQ(result.text, "hi");

  Vocabulary plain;
  plain.bytes.special_tokens.clear();
  Scene none = scripted(plain, {104, 105, 46, 46});
  EXPECT_THROW(none.generate("", greedy()), InputError);
  EXPECT_EQ(none.generate("a", greedy()).text, "hi..");
}

TEST(Generator, CharactersThatSpanTokensComeWhole) {
  Vocabulary vocabulary;
  std::vector<int32_t> script;
  const std::string said = "n\u00e4\U0001F600\u65e5";  // characters of 1, 2, 4 and 3 bytes
  for (const char c : said) script.push_back(byte(c));
  script.push_back(byte('\xF0'));  // one that never ends
  script.push_back(byte('\x9F'));
  Scene scene = scripted(vocabulary, script);
  scene.expect_streams("x", greedy());
  EXPECT_EQ(scene.generate("x", greedy()).text, said + "\uFFFD");
  EXPECT_EQ(scene.parts, (std::vector<std::string>{"n", "\u00e4", "\U0001F600", "\u65e5", "\uFFFD"}));
  // Cut inside the emoji.
  GenerateOptions options = greedy();
  options.max_tokens = 5;
  scene.expect_streams("x", options);
  EXPECT_EQ(scene.generate("x", options).text, "n\u00e4\uFFFD");
  // A stop that begins with the character that is not yet whole.
  EXPECT_EQ(scene.generate("x", greedy({"\U0001F600\u65e5"})).text, "n\u00e4");
  scene.expect_streams("x", greedy({"\U0001F600\u65e6"}));
  EXPECT_EQ(scene.generate("x", greedy({"\U0001F600\u65e6"})).text, said + "\uFFFD");
}

TEST(Generator, ThePromptIsTakenAsItStands) {
  Vocabulary vocabulary;
  Scene scene = scripted(vocabulary, repeated(byte('a'), 40));
  EXPECT_EQ(scene.generate("\\n", greedy()).prompt_ids, (std::vector<int32_t>{byte('\\'), byte('n')}));
  EXPECT_EQ(scene.generate("\n", greedy()).prompt_ids, (std::vector<int32_t>{byte('\n')}));
  EXPECT_EQ(scene.generate("<|endoftext|>", greedy()).prompt_ids.size(), 13u);
  GenerateOptions special = greedy();
  special.parse_special = true;
  EXPECT_EQ(scene.generate("<|endoftext|>", special).prompt_ids, (std::vector<int32_t>{kEnd}));
}

TEST(Generator, IdsWithoutATokenAreNeverChosen) {
  // The script wants an id between those of two tokens that no token has.
  Vocabulary vocabulary;
  std::string json = vocabulary.json();
  const std::string last = ": 256\n    }";
  ASSERT_NE(json.find(last), std::string::npos);
  json.replace(json.find(last), last.size(), ": 258\n    }");
  const fs::path directory = scratch("holes");
  testing::write_scripted_model(directory, json, 259, {256, 257, 258, 256});
  Scene scene(directory);
  EXPECT_FALSE(scene.tokenizer.has_id(257));
  GenerateOptions options = greedy();
  options.ignore_end = true;
  const Generation result = scene.generate("x", options);
  for (const int32_t id : result.token_ids) EXPECT_TRUE(scene.tokenizer.has_id(id)) << id;
  EXPECT_EQ(result.token_ids.size(), 4u);
}

TEST(Generator, ATokenizerThatIsTooLargeForTheModelIsRefused) {
  Vocabulary vocabulary;
  const fs::path directory = scratch("small");
  testing::write_scripted_model(directory, vocabulary.json(), 200, {1, 2, 3});
  try {
    Scene scene(directory);
    FAIL() << "257 tokens for a model of 200";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()),
              "the tokenizer has 257 tokens, the model only 200: they do not belong together");
  }
}

class RandomModel : public ::testing::TestWithParam<ModelForm> {
 protected:
  fs::path write() const {
    ModelConfig config = ModelConfig::defaults(GetParam());
    config.vocab_size = 257;
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_heads = 4;
    config.max_positions = 600;
    config.vocab_multiple = 8;
    config.resolve();
    const fs::path directory = scratch("random");
    testing::write_random_model(directory, Vocabulary().json(), config, 5);
    return directory;
  }
};

TEST_P(RandomModel, TheNumberOfThreadsChangesNothing) {
  const fs::path directory = write();
  GenerateOptions options;
  options.max_tokens = 40;
  options.sampling.seed = 3;
  options.sampling.temperature = 0.7;
  options.sampling.top_p = 0.95;
  options.sampling.repetition_penalty = 1.1;
  // Longer than one chunk of the prefill.
  const std::string prompt(540, 'q');
  std::vector<Generation> results;
  for (const int threads : {1, 2, 5}) {
    Scene scene(directory, threads);
    scene.expect_streams(prompt, options);
    results.push_back(scene.generate(prompt, options));
  }
  EXPECT_EQ(results[0].token_ids.size(), 40u);
  for (const Generation& other : results) {
    EXPECT_EQ(other.token_ids, results[0].token_ids);
    EXPECT_EQ(other.text, results[0].text);
  }
  Scene scene(directory);
  options.sampling.seed = 4;
  EXPECT_NE(scene.generate(prompt, options).token_ids, results[0].token_ids);
}

TEST_P(RandomModel, GoingOnFromAPrefixGivesTheSameTokens) {
  // The draw depends on the position and the history alone, and the cache holds what a longer prompt would.
  Scene scene(write());
  GenerateOptions options;
  options.max_tokens = 30;
  options.ignore_end = true;
  options.sampling.top_k = 40;
  const Generation whole = scene.generate("abc", options);
  ASSERT_EQ(whole.token_ids.size(), 30u);
  // A prompt can only hold what encodes to itself: single bytes below 128 do.
  size_t cut = 0;
  while (cut < 30 && whole.token_ids[cut] > 0 && whole.token_ids[cut] <= 128) ++cut;
  ASSERT_GT(cut, 0u) << "choose another seed: the first token is not a byte of ASCII";
  std::string prompt = "abc";
  for (size_t i = 0; i < cut; ++i) prompt += static_cast<char>(whole.token_ids[i] - 1);
  const Generation rest = scene.generate(prompt, options);
  for (size_t i = cut; i < 30; ++i) EXPECT_EQ(rest.token_ids[i - cut], whole.token_ids[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Forms, RandomModel, ::testing::Values(ModelForm::gpt2, ModelForm::llama),
                         [](const auto& form) {
                           return std::string(kModelFormNames[static_cast<size_t>(form.param)]);
                         });

}  // namespace
}  // namespace megalith
