// Tokenizers that go into a GGUF file and come out give every text the ids that they gave before.
#include "megalith/model/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;

fs::path fixture(const std::string& name) {
  return fs::path(std::getenv("MEGALITH_TEST_DATA")) / "text" / "fixtures" / name;
}

Json fixture_json(const std::string& name) {
  return Json::parse(read_file(fixture(name)));
}

class GgufTokenizer : public ::testing::Test {
 protected:
  GgufTokenizer()
      : path_(fs::path(::testing::TempDir()) / fmt::format("megalith-gguf-tokenizer-{}", ::getpid())) {}
  ~GgufTokenizer() override { fs::remove(path_); }

  Tokenizer through(const Tokenizer& tokenizer, int64_t more = 3) const {
    {
      GgufWriter writer(path_);
      writer.add("general.architecture", "llama");
      add_tokenizer_to_gguf(tokenizer, tokenizer.vocab_size() + more, {}, writer);
      writer.finish();
    }
    return *tokenizer_from_gguf(GgufFile(path_));
  }
  Tokenizer through(const Json& json) const { return through(Tokenizer::from_json(json.dump())); }
  std::string error_of(const Json& json) const {
    try {
      through(json);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path path_;
};

std::vector<std::string> nasty_texts() {
  return {"",
          " ",
          "Hello world",
          " Hello  world ",
          "<s>Hello</s>world <unk>",
          "caf\u00E9 CAFE\u0301 noir. \u0130\n\n\ttab",
          std::string("nul\0 inside", 11),
          std::string(3000, ' ') + "x",
          std::string(3000, 'a'),
          "\u4E2D\u6587 \U0001F468\u200D\U0001F469 \u2581\u2581 [MASK] [UNK] ##b",
          "bad \xFF\xFE utf-8 \xE2\x82 bbbbbbbbbbbb bbbbbbbbb"};
}

void expect_same(const Tokenizer& before, const Tokenizer& after, const std::string& text) {
  for (const bool parse : {false, true}) {
    for (const bool add : {false, true}) {
      const EncodeOptions options{.parse_special = parse, .add_special = add};
      ASSERT_EQ(after.encode(text, options), before.encode(text, options)) << text;
    }
  }
}

TEST_F(GgufTokenizer, SentencePieceOfATokenizerJson) {
  for (const std::string name : {"spm_norm_prepend", "spm_metaspace_never"}) {
    const Tokenizer before = Tokenizer::load(fixture(name + ".json")), after = through(before);
    for (const std::string& text : nasty_texts()) expect_same(before, after, text);
    std::ifstream rows(fixture("expected.jsonl"));
    int count = 0;
    for (std::string line; std::getline(rows, line);) {
      const Json row = Json::parse(line);
      if (row["fixture"] != name) continue;
      ++count;
      const EncodeOptions options{.parse_special = true, .add_special = row["add_special"].get<bool>()};
      EXPECT_EQ(after.encode(row["text"].get<std::string>(), options), row["ids"].get<std::vector<int32_t>>())
          << line;
    }
    EXPECT_GT(count, 3) << name;
    const GgufFile file(path_);
    EXPECT_EQ(file.text("tokenizer.ggml.model"), "llama");
    EXPECT_EQ(file.integer("tokenizer.ggml.unknown_token_id"), 0);
    EXPECT_EQ(file.integer("tokenizer.ggml.bos_token_id"), 1);
    EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), 2);
    EXPECT_EQ(file.boolean("tokenizer.ggml.add_bos_token"), true);
    EXPECT_EQ(file.boolean("tokenizer.ggml.add_eos_token"), false);
    EXPECT_EQ(file.boolean("tokenizer.ggml.add_space_prefix"), name == "spm_norm_prepend");
    const auto types = *file.integers("tokenizer.ggml.token_type");
    EXPECT_EQ(std::vector<int64_t>(types.begin(), types.begin() + 4), (std::vector<int64_t>{2, 3, 3, 6}));
    EXPECT_EQ(types.back(), 5);
  }
}

TEST_F(GgufTokenizer, WhatScoresCannotSayIsRefused) {
  EXPECT_THAT(error_of(fixture_json("spm_metaspace_first.json")),
              HasSubstr("tokenizer.json.pre_tokenizer: its prepend_scheme is not \"never\""));
  EXPECT_THAT(error_of(fixture_json("spm_metaspace_always.json")), HasSubstr("prepend_scheme"));
  Json json = fixture_json("spm_norm_prepend.json");
  const auto error_with = [&](const char* place, const Json& value) {
    Json changed = json;
    changed[Json::json_pointer(place)] = value;
    return error_of(changed);
  };
  EXPECT_THAT(error_with("/model/byte_fallback", false), HasSubstr("byte_fallback"));
  EXPECT_THAT(error_with("/model/ignore_merges", true), HasSubstr("ignore_merges"));
  EXPECT_THAT(error_with("/normalizer/normalizers/2", {{"type", "NFKC"}}),
              HasSubstr("tokenizer.json.normalizer.normalizers[2]"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Digits"}, {"individual_digits", true}}),
              HasSubstr("tokenizer.json.pre_tokenizer: it splits texts"));
  EXPECT_THAT(error_with("/added_tokens/1/lstrip", true), HasSubstr("added token '<s>' has lstrip"));
  EXPECT_THAT(error_with("/added_tokens/1/normalized", true), HasSubstr("added token '<s>' is looked for"));
  const Json unigram =
      Json::parse(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1]]}})");
  EXPECT_THAT(error_of(unigram), HasSubstr("its model is Unigram"));
}

// Merges in any order, of which many a list joins what scores would not, or the reverse: a list is either
// refused or gives the same ids.
TEST_F(GgufTokenizer, MergesGiveTheIdsThatScoresGive) {
  Json json = fixture_json("spm_metaspace_never.json");
  std::mt19937 draw(3);
  const auto below = [&](size_t bound) { return draw() % bound; };
  int written = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> pieces = {"a", "b", "c", "\u2581"};
    Json vocabulary = json["model"]["vocab"];
    for (auto at = vocabulary.begin(); at != vocabulary.end();) {
      at = at.value() >= 259 ? vocabulary.erase(at) : std::next(at);
    }
    Json merges = Json::array();
    const size_t count = 2 + below(8);
    while (merges.size() < count) {
      const std::string left = pieces[below(pieces.size())], right = pieces[below(pieces.size())];
      merges.push_back({left, right});
      if (std::find(pieces.begin(), pieces.end(), left + right) == pieces.end())
        pieces.push_back(left + right);
    }
    std::shuffle(merges.begin(), merges.end(), draw);
    int32_t id = 259;
    for (const std::string& piece : pieces) vocabulary[piece] = id++;
    json["model"]["vocab"] = vocabulary;
    json["model"]["merges"] = merges;
    const Tokenizer before = Tokenizer::from_json(json.dump());
    std::optional<Tokenizer> after;
    try {
      after = through(before);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not made by its merges, but would be made by scores"));
      ++refused;
      continue;
    }
    ++written;
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (size_t length = 1 + below(40); text.size() < length;) text += "aabbccd "[below(8)];
      ASSERT_EQ(after->encode(text), before.encode(text)) << merges << "\n" << text;
    }
  }
  EXPECT_GT(written, 30);
  EXPECT_GT(refused, 30);
}

// Scores stay what they were.
TEST_F(GgufTokenizer, SentencePieceOfAGgufFile) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "\u2581a", "<turn>"};
  std::vector<float> scores = {0, 0, 0, -5, -6, -2.5f, -7, -1, 0};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 4};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
    scores.push_back(0);
  }
  for (const bool prefix : {true, false}) {
    {
      GgufWriter writer(path_);
      writer.add("general.architecture", "llama");
      writer.add("tokenizer.ggml.model", "llama");
      writer.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
      writer.add("tokenizer.ggml.scores", std::span<const float>(scores));
      writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
      writer.add("tokenizer.ggml.bos_token_id", uint32_t{1});
      writer.add("tokenizer.ggml.add_space_prefix", prefix);
      writer.finish();
    }
    const Tokenizer before = *tokenizer_from_gguf(GgufFile(path_)), after = through(before, 0);
    const GgufFile file(path_);
    const auto* array = std::get_if<GgufArray>(&file.find("tokenizer.ggml.scores")->value);
    ASSERT_EQ(array->count, scores.size());
    EXPECT_EQ(std::memcmp(array->numbers, scores.data(), scores.size() * sizeof(float)), 0);
    std::vector<std::string> texts = nasty_texts();
    for (const char* text : {"ab ab", "bab", " a<turn>  b"}) texts.emplace_back(text);
    // And by way of a tokenizer.json, where scores are merges.
    const Tokenizer merged = through(Json::parse(before.to_json()));
    for (const std::string& text : texts) {
      expect_same(before, after, text);
      expect_same(before, merged, text);
    }
  }
}

// User-defined pieces stand in a text that goes on behind them.
TEST_F(GgufTokenizer, SentencePieceModel) {
  const Tokenizer before = Tokenizer::load(fixture("sp_bpe_bytes.model")), after = through(before);
  EXPECT_EQ(GgufFile(path_).boolean(kGgufUserDefinedInTextKey), true);
  const Tokenizer again = through(after);
  std::vector<std::string> texts = nasty_texts();
  for (const char* text : {"a<sep>b", "<sep>", " <sep> <sep>x", "lo the lo the", "x lo thelo the<sep>"})
    texts.emplace_back(text);
  for (const std::string& text : texts) {
    expect_same(before, after, text);
    expect_same(before, again, text);
    const std::vector<int32_t> ids = before.encode(text);
    EXPECT_EQ(after.decode(ids), before.decode(ids)) << text;
  }
}

TEST_F(GgufTokenizer, WordPiece) {
  Json json = fixture_json("wordpiece_cased.json");
  EXPECT_THAT(error_of(json), HasSubstr("tokenizer.json.normalizer: its lowercase is off"));
  json["normalizer"]["lowercase"] = true;
  int32_t id = 9;
  for (const char* piece : {"cafe", "##e", "[CLS]", "[SEP]", "[unused0]", "##[", "a"})
    json["model"]["vocab"][piece] = id++;
  for (const auto& [content, token] : {std::pair("[CLS]", 11), std::pair("[SEP]", 12)})
    json["added_tokens"].push_back({{"id", token}, {"content", content}, {"special", true}});
  const Tokenizer plain = Tokenizer::from_json(json.dump());
  json["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"[CLS]", 11}}, {"sep", {"[SEP]", 12}}};
  const Tokenizer framed = Tokenizer::from_json(json.dump());
  for (const Tokenizer& before : {plain, framed}) {
    const Tokenizer after = through(before);
    for (const std::string& text : nasty_texts()) expect_same(before, after, text);
  }
  const GgufFile file(path_);
  EXPECT_EQ(file.text("tokenizer.ggml.model"), "bert");
  const auto tokens = *file.strings("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens[0], "[UNK]");
  EXPECT_EQ(tokens[3], "\u00E9");
  EXPECT_EQ(tokens[4], "\u2581noir");
  EXPECT_EQ(file.integer("tokenizer.ggml.cls_token_id"), 11);
  EXPECT_EQ(file.integer("tokenizer.ggml.seperator_token_id"), 12);
  EXPECT_EQ(file.integer("tokenizer.ggml.unknown_token_id"), 0);
  EXPECT_EQ(file.integer("tokenizer.ggml.mask_token_id"), 1);
  EXPECT_EQ(file.integer(kGgufLongestWordKey), 10);
  const auto error_with = [&](const char* place, const Json& value) {
    Json changed = json;
    changed[Json::json_pointer(place)] = value;
    return error_of(changed);
  };
  EXPECT_THAT(error_with("/normalizer/strip_accents", false), HasSubstr("strip_accents"));
  EXPECT_THAT(error_with("/normalizer/handle_chinese_chars", false), HasSubstr("handle_chinese_chars"));
  EXPECT_THAT(error_with("/normalizer", nullptr), HasSubstr("BertNormalizer"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Whitespace"}}), HasSubstr("BertPreTokenizer"));
  EXPECT_THAT(error_with("/model/continuing_subword_prefix", "@@"), HasSubstr("continuing_subword_prefix"));
  EXPECT_THAT(error_with("/model/vocab/##[x]", 16), HasSubstr("token 16 ('##[x]') has no spelling there"));
}

}  // namespace
}  // namespace megalith
