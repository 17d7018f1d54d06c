// Every model, normalizer, pre-tokenizer, post-processor and decoder of tokenizer.json against the reference
// library (tests/text/make_pipeline_golden.py).
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/charsmap.h"
#include "megalith/text/tokenizer.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using testing::fixture;

struct Row {
  std::string text;
  EncodeOptions options;
  std::vector<int32_t> ids;
  std::vector<uint64_t> offsets;
  std::string decoded, decoded_without_special;
};

struct Pipeline {
  std::string name;
  Tokenizer tokenizer;
  std::vector<Row> rows;
};

std::vector<Pipeline> pipelines() {
  std::ifstream lines(fixture("pipelines.jsonl"));
  std::string line;
  std::getline(lines, line);
  const Json models = Json::parse(line);
  std::getline(lines, line);
  const auto texts = Json::parse(line).get<std::vector<std::string>>();
  std::vector<Pipeline> result;
  while (std::getline(lines, line)) {
    Json json = Json::parse(line);
    json["tokenizer"]["model"] = models.at(json["tokenizer"]["model"].get<std::string>());
    Pipeline pipeline{json["name"], Tokenizer::from_json(json["tokenizer"].dump()), {}};
    for (const Json& row : json["rows"]) {
      pipeline.rows.push_back({texts.at(row[0]),
                               {.parse_special = true, .add_special = row[1]},
                               row[2],
                               row[3],
                               row[4],
                               row.back()});
    }
    result.push_back(std::move(pipeline));
  }
  return result;
}

// The library gives one U+FFFD for each byte of a run of byte tokens that is not UTF-8; here valid characters
// beside bad bytes stay.
bool has_replaced_bytes(const std::string& text) {
  return text.find("\xEF\xBF\xBD") != std::string::npos;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  StreamingDecoder stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + stream.flush();
}

TEST(Pipeline, EveryElementAsTheReferenceLibrary) {
  const auto all = pipelines();
  EXPECT_GT(all.size(), 60u);
  for (const Pipeline& pipeline : all) {
    for (const Row& row : pipeline.rows) {
      const auto where = [&] { return pipeline.name + ": " + Json(row.text).dump(); };
      ASSERT_EQ(pipeline.tokenizer.encode(row.text, row.options), row.ids) << where();
      ASSERT_EQ(pipeline.tokenizer.encode_parallel(row.text, 2, row.options), row.ids) << where();
      std::vector<uint64_t> offsets;
      for (const TokenSpan& span : pipeline.tokenizer.encode_with_offsets(row.text, row.options)) {
        offsets.push_back(span.character_begin);
        offsets.push_back(span.character_end);
      }
      ASSERT_EQ(offsets, row.offsets) << where();
      for (const bool skip : {false, true}) {
        const std::string& expected = skip ? row.decoded_without_special : row.decoded;
        const std::string decoded = pipeline.tokenizer.decode(row.ids, skip);
        ASSERT_EQ(streamed(pipeline.tokenizer, row.ids, skip), replace_invalid_utf8(decoded)) << where();
        if (has_replaced_bytes(expected)) continue;
        ASSERT_EQ(decoded, expected) << where();
      }
    }
  }
}

// Neither cuts nor threads show, and nothing takes more than linear time.
TEST(Pipeline, LongTextsOfOneKind) {
  std::string words, emoji;
  while (words.size() < 150000) words += "the lores kami's\n lo  12 \xC3\xA9, e\xCC\x81 \xE5\xAD\x97 ";
  while (emoji.size() < 30000) emoji += "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB";
  const std::string texts[] = {words, emoji, std::string(30000, 'a'), std::string(30000, ' '),
                               std::string(30000, '\xFF')};
  const auto start = std::chrono::steady_clock::now();
  for (const Pipeline& pipeline : pipelines()) {
    for (const std::string& text : texts) {
      const auto ids = pipeline.tokenizer.encode(text);
      ASSERT_EQ(pipeline.tokenizer.encode_parallel(text, 2), ids) << pipeline.name;
      const auto spans = pipeline.tokenizer.encode_with_offsets(text);
      ASSERT_EQ(spans.size(), ids.size()) << pipeline.name;
      for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(spans[i].id, ids[i]) << pipeline.name;
    }
  }
  // Quadratic time would be hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(4));
}

// Damaged descriptions: always an error that names the element, or a tokenizer that works.
TEST(Pipeline, MutatedFiles) {
  std::ifstream lines(fixture("pipelines.jsonl"));
  std::string line;
  std::getline(lines, line);
  const Json models = Json::parse(line);
  std::getline(lines, line);
  std::mt19937 random(23);
  int loaded = 0, refused = 0;
  while (std::getline(lines, line)) {
    Json json = Json::parse(line)["tokenizer"];
    json["model"] = models.at(json["model"].get<std::string>());
    json["model"].erase("merges");
    if (json["model"]["type"] == "BPE") json["model"]["merges"] = Json::array();
    const std::string original = json.dump();
    for (int round = 0; round < 60; ++round) {
      std::string text = original;
      // The steps stand before and behind the vocabulary.
      for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
        const size_t at = random() % 2 == 0 ? random() % 700 : text.size() - 1 - random() % 700;
        if (random() % 2 == 0) {
          text[at] = "{}[]\":,0123456789-.eEtfl"[random() % 24];
        } else {
          text.erase(at, 1 + random() % 12);
        }
      }
      try {
        const Tokenizer tokenizer = Tokenizer::from_json(text);
        tokenizer.decode(tokenizer.encode("the lo <s> kami's \xE5\xAD\x97 \xFF 12", true));
        tokenizer.encode_with_offsets("the lo e\xCC\x81", {.truncate = true, .pad = true});
        ++loaded;
      } catch (const InputError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 500);
}

// Found by tests/fuzz: half a character from a damaged map led the model beyond its piece.
TEST(Charsmap, GivesWholeCharactersOnly) {
  const auto map_of = [](uint32_t value, std::string_view replacements) {
    // The root goes to unit 1 ^ 'a', a leaf whose value is in the unit that it goes to in turn.
    std::vector<uint32_t> units(256, 0);
    units[0] = 1u << 10;
    units[1 ^ 'a'] = (2u << 10) | (1u << 8) | 'a';
    units[(1 ^ 'a') ^ 2] = (1u << 31) | value;
    const auto size = static_cast<uint32_t>(units.size() * 4);
    std::string binary(reinterpret_cast<const char*>(&size), 4);
    binary.append(reinterpret_cast<const char*>(units.data()), size);
    return Charsmap(binary.append(replacements), "map");
  };
  const std::string_view replacements("x\0\xC3\xA9\0", 5);
  EXPECT_EQ(map_of(2, replacements).shortest("a").replacement, "\xC3\xA9");
  EXPECT_EQ(map_of(3, replacements).shortest("a").length, 0u);
  EXPECT_THROW(map_of(0, std::string_view("\xA9\0", 2)), InputError);
}

}  // namespace
}  // namespace megalith
