// What a tokenizer.json may hold, and the errors for the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/text/tokenizer.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

using testing::byte_vocabulary;
using testing::fixture;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Json small() {
  ByteLevelVocabulary vocabulary = byte_vocabulary();
  vocabulary.merges.emplace_back(1 + 'a', 1 + 'b');
  vocabulary.pieces.emplace_back("ab");
  return Json::parse(write_tokenizer_json(vocabulary));
}

Json split(const std::string& pattern, const std::string& behavior = "Isolated") {
  Json node;
  node["type"] = "Sequence";
  node["pretokenizers"] = Json::array();
  node["pretokenizers"].push_back(
      {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}});
  node["pretokenizers"].push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  return node;
}

std::string error_of(const std::string& text) {
  try {
    Tokenizer::from_json(text, "file.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerJson, SupportedPatterns) {
  for (
      const std::string pattern :
      {R"(\s+(?!\S)|\S+|\s)", R"(\p{Lu}?\p{Ll}+|.)", R"((?i:'s|'t)|[^']+|')", R"([^\s]++|\s++)",
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}) {
    Json json = small();
    json["pre_tokenizer"] = split(pattern);
    const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
    for (const std::string text : {"don't  STOP\n\n abABab 12345", "\n", " ", "\u3000é", "'"}) {
      EXPECT_FALSE(tokenizer.encode(text).empty());
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << pattern;
    }
  }
}

TEST(TokenizerJson, AThirdPatternThatMatchesNothingStillEncodes) {
  Json json = small();
  json["pre_tokenizer"] = split("zzz");
  EXPECT_EQ(Tokenizer::from_json(json.dump()).encode("ab").size(), 1u);
  // A match of nothing cuts, as in the tokenizers library: a|b|xx|a|b, where no merge joins the two x.
  json["pre_tokenizer"] = split("x*");
  EXPECT_EQ(Tokenizer::from_json(json.dump()).encode("abxxab").size(), 6u);
}

TEST(TokenizerJson, ErrorsNameTheElement) {
  const auto changed = [](const std::function<void(Json&)>& change) {
    Json json = small();
    change(json);
    return error_of(json.dump());
  };
  EXPECT_THAT(changed([](Json& j) { j["pre_tokenizer"] = split("(abc"); }),
              HasSubstr("file.json.pre_tokenizer.pretokenizers[0].pattern.Regex"));
  EXPECT_THAT(changed([](Json& j) { j["pre_tokenizer"] = split("\\C"); }), HasSubstr("not supported"));
  EXPECT_THAT(changed([](Json& j) { j["pre_tokenizer"] = split("a", "Sideways"); }),
              HasSubstr("pretokenizers[0].behavior"));
  EXPECT_THAT(changed([](Json& j) { j["pre_tokenizer"]["type"] = "Mystery"; }), HasSubstr("'Mystery'"));
  EXPECT_THAT(changed([](Json& j) {
                j["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
              }),
              HasSubstr("file.json.pre_tokenizer.replacement: expected one character"));
  EXPECT_THAT(changed([](Json& j) {
                j["normalizer"] = {{"type", "Mystery"}};
              }),
              HasSubstr("file.json.normalizer.type: normalizer 'Mystery' is not supported"));
  EXPECT_THAT(changed([](Json& j) {
                j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}}}}};
              }),
              HasSubstr("file.json.normalizer.normalizers[0].prepend: missing"));
  EXPECT_THAT(changed([](Json& j) {
                j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}};
              }),
              HasSubstr("file.json.normalizer.precompiled_charsmap"));
  EXPECT_THAT(changed([](Json& j) { j["decoder"]["type"] = "Mystery"; }),
              HasSubstr("file.json.decoder.type"));
  EXPECT_THAT(changed([](Json& j) {
                j["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}};
              }),
              HasSubstr("file.json.decoder.start"));
  EXPECT_THAT(changed([](Json& j) {
                j["post_processor"] = {{"type", "Bert"}};
              }),
              HasSubstr("file.json.post_processor.type"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["type"] = "Mystery"; }), HasSubstr("file.json.model.type"));
  EXPECT_THAT(changed([](Json& j) {
                j["truncation"] = {{"max_length", -3}};
              }),
              HasSubstr("file.json.truncation.max_length"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["dropout"] = 0.1; }), HasSubstr("file.json.model.dropout"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["surprise"] = 1; }), HasSubstr("file.json.model.surprise"));
  EXPECT_THAT(changed([](Json& j) { j["surprise"] = 1; }), HasSubstr("file.json.surprise"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["vocab"].erase("ab"); }),
              HasSubstr("file.json.model.merges[0]: 'ab'"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["vocab"]["ab"] = 5; }), HasSubstr("id 5 is given twice"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["vocab"]["x y"] = -4; }),
              HasSubstr("file.json.model.vocab['x y']"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["vocab"]["xy"] = 1ll << 40; }),
              HasSubstr("expected a token id"));
  // Found by tests/fuzz: tables for so many ids would take half a gigabyte.
  EXPECT_THAT(changed([](Json& j) { j["model"]["vocab"]["xy"] = (1 << 24) - 1; }),
              HasSubstr("file.json.model.vocab: the largest id, 16777215, is absurd for"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["merges"][0] = "a b c"; }),
              HasSubstr("file.json.model.merges[0]"));
  EXPECT_THAT(changed([](Json& j) { j["model"]["merges"][0] = Json::array({"a"}); }),
              HasSubstr("file.json.model.merges[0]"));
  EXPECT_THAT(changed([](Json& j) { j["added_tokens"][0]["id"] = 7; }),
              HasSubstr("'<|endoftext|>' has id 7"));
  EXPECT_THAT(changed([](Json& j) { j["added_tokens"][0]["content"] = ""; }),
              HasSubstr("file.json.added_tokens[0].content"));
  EXPECT_THAT(changed([](Json& j) { j["added_tokens"][0]["lstrip"] = 3; }),
              HasSubstr("file.json.added_tokens[0].lstrip"));
  // The id would mean the byte 0x0D and the letter.
  EXPECT_THAT(changed([](Json& j) {
                j["added_tokens"].push_back({{"id", j["model"]["vocab"]["č"]}, {"content", "č"}});
              }),
              HasSubstr("model.vocab['č']"));
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("not valid JSON"));
  EXPECT_EQ(error_of(small().dump()), "no error");
}

// Small files that would take any memory once a text comes.
TEST(TokenizerJson, StepsThatMultiplyAreRefused) {
  const auto error = [](const std::function<void(Json&)>& change) -> std::string {
    Json json = small();
    change(json);
    try {
      Tokenizer::from_json(json.dump(), "file.json").encode("aaa");
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  const auto doubling = [](int times, const char* list, const Json& last) {
    Json steps = Json::array();
    for (int i = 0; i < times; ++i)
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
    steps.push_back(last);
    return Json{{"type", "Sequence"}, {list, steps}};
  };
  const Json nfc = {{"type", "NFC"}}, fuse = {{"type", "Fuse"}};
  EXPECT_EQ(error([&](Json& j) { j["normalizer"] = doubling(12, "normalizers", nfc); }), "no error");
  EXPECT_THAT(error([&](Json& j) { j["normalizer"] = doubling(13, "normalizers", nfc); }),
              HasSubstr("file.json: the normalizer could make a text more than 4096 times longer"));
  EXPECT_THAT(error([&](Json& j) { j["decoder"] = doubling(13, "decoders", fuse); }),
              HasSubstr("file.json: the decoder could make a text more than 4096 times longer"));
  EXPECT_THAT(error([&](Json& j) {
                j["padding"] = {{"strategy", {{"Fixed", 1 << 21}}}, {"pad_id", 0}};
              }),
              HasSubstr("file.json.padding.strategy.Fixed"));
  EXPECT_THAT(error([&](Json& j) {
                Json single = Json::array();
                for (int i = 0; i < 100; ++i) single.push_back({{"SpecialToken", {{"id", "a"}}}});
                single.push_back({{"Sequence", {{"id", "A"}}}});
                j["post_processor"] = {
                    {"type", "TemplateProcessing"},
                    {"single", single},
                    {"special_tokens", {{"a", {{"id", "a"}, {"ids", std::vector<int>(100, 0)}}}}}};
              }),
              HasSubstr("the template has too many tokens"));
}

// A byte without a token is left out before anything is joined, so that its neighbours may be; in short words
// and in long ones, which are encoded in another way.
TEST(TokenizerJson, BytesWithoutATokenAreLeftOut) {
  Json json = small();
  json["model"]["vocab"].erase("z");
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  EXPECT_EQ(tokenizer.encode("azb"), tokenizer.encode("ab"));
  EXPECT_EQ(tokenizer.encode("zzz"), std::vector<int32_t>());
  std::string word, with;
  for (int i = 0; i < 100; ++i) {
    word += "ab";
    with += "zazbz";
  }
  EXPECT_EQ(tokenizer.encode(with), tokenizer.encode(word));
}

TEST(TokenizerJson, MergesAsStringsAndPairs) {
  Json json = small();
  json["model"]["merges"][0] = "a b";
  EXPECT_EQ(Tokenizer::from_json(json.dump()).encode("ab").size(), 1u);
}

// Damaged files: always an error or a tokenizer that works, never a crash.
TEST(TokenizerJson, MutatedFiles) {
  const std::string original = read_file(fixture("bl_overlapping_added.json"));
  std::mt19937 random(13);
  const std::string characters = "{}[]\":,0123456789-.eE\\untfl \x00\xff\xc3";
  int loaded = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = original;
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = characters[random() % characters.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 40);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text.insert(at, 1, characters[random() % characters.size()]);
      }
      if (text.empty()) text = "{";
    }
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(text);
      const auto ids = tokenizer.encode("<a>bc don't 12 é\n\n x<a>b", true);
      tokenizer.decode(ids);
      ++loaded;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("tokenizer.json"));
      ++refused;
    }
  }
  EXPECT_GT(loaded, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace megalith
