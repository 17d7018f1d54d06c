#include "megalith/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/utf8.h"
#include "megalith/text/bpe_trainer.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

using testing::byte_vocabulary;
using ::testing::ElementsAre;
using testing::fixture;
using ::testing::HasSubstr;

const char* const kEnglish =
    "Call me Ishmael. Some years ago - never mind how long precisely - having little or no money in my "
    "purse, and nothing "
    "particular to interest me on shore, I thought I would sail about a little and see the watery part of "
    "the world. It's "
    "a way I have of driving off the spleen, and regulating the circulation.\n\n  Whenever I find myself "
    "growing grim "
    "about the mouth; whenever it is a damp, drizzly November in my soul... 1851, 123456 whales\tand 日本語 "
    "text, naïve café.\r\n";

Tokenizer trained(const std::string& pattern = "gpt2", int64_t size = 400) {
  BpeTrainer trainer({.vocabulary_size = size, .pattern = pattern});
  trainer.add_document(kEnglish);
  return trainer.train();
}

TEST(Tokenizer, RowsOfTheReferenceLibrary) {
  std::ifstream rows(fixture("expected.jsonl"));
  ASSERT_TRUE(rows);
  std::map<std::string, Tokenizer> loaded;
  int count = 0;
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    const std::string name = row["fixture"];
    auto found = loaded.find(name);
    if (found == loaded.end()) found = loaded.emplace(name, Tokenizer::load(fixture(name + ".json"))).first;
    const Tokenizer& tokenizer = found->second;
    const std::string text = row["text"];
    const EncodeOptions options{.parse_special = true, .add_special = row["add_special"]};
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, options), ids) << line;
    EXPECT_EQ(tokenizer.encode_parallel(text, 2, options), ids) << line;
    const auto spans = tokenizer.encode_with_offsets(text, options);
    ASSERT_EQ(spans.size(), ids.size()) << line;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(spans[i].id, ids[i]);
      EXPECT_EQ(spans[i].character_begin, row["offsets"][i][0].get<uint64_t>()) << line << " token " << i;
      EXPECT_EQ(spans[i].character_end, row["offsets"][i][1].get<uint64_t>()) << line << " token " << i;
    }
    // There the reference library is itself at fault: added tokens went through the byte alphabet.
    if (name != "bl_added_alphabet") {
      EXPECT_EQ(tokenizer.decode(ids), row["decoded_keep_special"].get<std::string>()) << line;
    }
    ++count;
  }
  EXPECT_EQ(count, 58);
}

TEST(Tokenizer, AddedTokensDecodeToTheirOwnText) {
  const Tokenizer tokenizer = Tokenizer::load(fixture("bl_added_alphabet.json"));
  for (const std::string text : {"ačau b", "a Ġx", "č", "Ġ", "čau", "Ġx Ġ x"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    StreamingDecoder stream(tokenizer);
    std::string streamed;
    for (const int32_t id : tokenizer.encode(text)) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.flush(), text);
  }
}

TEST(Tokenizer, OffsetsAreInCharactersAndBytes) {
  const Tokenizer tokenizer = Tokenizer::load(fixture("bl_llama3split.json"));
  const std::string text("\uFEFFa\0b💩", 9);
  const auto spans = tokenizer.encode_with_offsets(text);
  uint64_t byte = 0;
  for (const TokenSpan& span : spans) {
    EXPECT_EQ(span.byte_begin, byte);
    byte = span.byte_end;
  }
  EXPECT_EQ(byte, text.size());
  EXPECT_EQ(spans.back().character_end, 5u);
  EXPECT_EQ(spans.back().character_begin, 4u);
  EXPECT_EQ(spans[2].character_begin, 0u);
  EXPECT_EQ(spans[2].character_end, 1u);
}

TEST(Tokenizer, AnyBytesComeBack) {
  std::mt19937 random(3);
  for (const std::string pattern : {"gpt2", "llama3"}) {
    const Tokenizer tokenizer = trained(pattern);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      const size_t size = 1 + random() % 40;
      while (text.size() < size) {
        switch (random() % 4) {
          case 0:
            text.push_back(static_cast<char>(random()));
            break;
          case 1:
            append_utf8(text, 0x80 + random() % 0x700);
            break;
          default:
            text.append(kEnglish + random() % 300, 3);
        }
      }
      const auto ids = tokenizer.encode(text);
      ASSERT_FALSE(ids.empty());
      ASSERT_EQ(tokenizer.decode(ids), text);
      StreamingDecoder stream(tokenizer);
      std::string streamed;
      for (const int32_t id : ids) {
        const std::string part = stream.push(id);
        ASSERT_TRUE(is_valid_utf8(part));
        streamed += part;
      }
      ASSERT_EQ(streamed + stream.flush(), replace_invalid_utf8(text));
      const auto spans = tokenizer.encode_with_offsets(text);
      ASSERT_EQ(spans.size(), ids.size());
      ASSERT_EQ(spans.back().byte_end, text.size());
    }
  }
  EXPECT_TRUE(trained().encode("").empty());
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAskedFor) {
  const Tokenizer tokenizer = trained();
  const int32_t end = tokenizer.end_of_document().value();
  EXPECT_EQ(tokenizer.id_of("<|endoftext|>"), end);
  const auto plain = tokenizer.encode("a<|endoftext|>b");
  EXPECT_THAT(plain, ::testing::Not(::testing::Contains(end)));
  const auto parsed = tokenizer.encode("a<|endoftext|>b", true);
  EXPECT_THAT(parsed, ElementsAre(tokenizer.id_of("a").value(), end, tokenizer.id_of("b").value()));
  EXPECT_EQ(tokenizer.decode(parsed), "a<|endoftext|>b");
  EXPECT_EQ(tokenizer.decode(parsed, true), "ab");
}

// Joins the lowest rank again and again, looking at every pair: the definition.
std::vector<int32_t> merge_plainly(const Tokenizer& tokenizer, const ByteLevelVocabulary& vocabulary,
                                   std::string_view piece) {
  std::vector<int32_t> ids;
  for (const char c : piece) ids.push_back(tokenizer.id_of(std::string_view(&c, 1)).value());
  while (true) {
    size_t best_rank = vocabulary.merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (vocabulary.merges[rank] == std::pair(ids[i], ids[i + 1])) {
          best_rank = rank;
          at = i;
        }
      }
    }
    if (best_rank == vocabulary.merges.size()) return ids;
    ids[at] = tokenizer
                  .id_of(std::string(tokenizer.token_bytes(ids[at])) +
                         std::string(tokenizer.token_bytes(ids[at + 1])))
                  .value();
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Tokenizer, ShortAndLongPiecesFollowTheDefinition) {
  // Random merges over three letters, longer and longer.
  std::mt19937 random(5);
  ByteLevelVocabulary vocabulary = byte_vocabulary();
  while (vocabulary.merges.size() < 60) {
    const auto pick = [&]() -> int32_t {
      const size_t made = vocabulary.merges.size();
      if (made > 0 && random() % 2 == 0) return static_cast<int32_t>(257 + random() % made);
      return static_cast<int32_t>(1 + 'a' + random() % 3);
    };
    const int32_t left = pick(), right = pick();
    const std::string joined =
        vocabulary.pieces[static_cast<size_t>(left - 1)] + vocabulary.pieces[static_cast<size_t>(right - 1)];
    if (std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), joined) != vocabulary.pieces.end())
      continue;
    vocabulary.merges.emplace_back(left, right);
    vocabulary.pieces.push_back(joined);
  }
  std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), random);
  const Tokenizer tokenizer = Tokenizer::from_json(write_tokenizer_json(vocabulary));
  for (int round = 0; round < 600; ++round) {
    std::string piece;
    const size_t size = 1 + random() % (round % 3 == 0 ? 300 : 60);
    for (size_t i = 0; i < size; ++i) piece.push_back(static_cast<char>('a' + random() % 3));
    ASSERT_EQ(tokenizer.encode(piece), merge_plainly(tokenizer, vocabulary, piece)) << piece;
  }
}

TEST(Tokenizer, ThreadsAndStretchesDoNotShow) {
  std::string text;
  std::mt19937 random(9);
  while (text.size() < (5u << 20)) {
    text.append(kEnglish + random() % 200, 100);
    if (random() % 50 == 0) text.push_back(static_cast<char>(random()));
    if (random() % 500 == 0) text += "<|endoftext|>";
  }
  for (const std::string pattern : {"gpt2", "llama3"}) {
    const Tokenizer tokenizer = trained(pattern);
    for (const bool special : {false, true}) {
      const EncodeOptions options{.parse_special = special};
      const auto whole = tokenizer.encode(text, options);
      EXPECT_EQ(tokenizer.encode_parallel(text, 1, options), whole);
      EXPECT_EQ(tokenizer.encode_parallel(text, 3, options), whole);
      std::vector<int32_t> other;
      std::thread second([&] { other = tokenizer.encode(text, options); });
      EXPECT_EQ(tokenizer.encode(text, options), whole);
      second.join();
      EXPECT_EQ(other, whole);
      EXPECT_EQ(tokenizer.decode(whole), text);
    }
  }
}

TEST(Tokenizer, OneMegabyteOfOneLetterIsQuick) {
  ByteLevelVocabulary vocabulary = byte_vocabulary();
  std::string run = "a";
  int32_t last = 1 + 'a';
  for (int doubling = 0; doubling < 6; ++doubling) {
    run += run;
    vocabulary.merges.emplace_back(last, last);
    vocabulary.pieces.push_back(run);
    last = static_cast<int32_t>(vocabulary.pieces.size());
  }
  const Tokenizer tokenizer = Tokenizer::from_json(write_tokenizer_json(vocabulary));
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer.encode(std::string(1 << 20, 'a'));
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(10));  // Quadratic time would be hours.
  EXPECT_EQ(ids.size(), (1u << 20) / 64);
}

TEST(Tokenizer, PrefixSpace) {
  auto json = nlohmann::ordered_json::parse(trained().to_json());
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  const Tokenizer plain = trained();
  EXPECT_EQ(tokenizer.encode("the world"), plain.encode(" the world"));
  EXPECT_EQ(tokenizer.encode(" the world"), plain.encode(" the world"));
  const auto spans = tokenizer.encode_with_offsets("the world");
  EXPECT_EQ(spans.front().byte_begin, 0u);
  EXPECT_EQ(spans.back().byte_end, 9u);
}

TEST(Tokenizer, TemplateAddsTokens) {
  auto json = nlohmann::ordered_json::parse(trained().to_json());
  json["post_processor"] = nlohmann::json::parse(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},
    {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|endoftext|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
     "pair":[],"special_tokens":{"<|endoftext|>":{"id":"<|endoftext|>","ids":[0],"tokens":["<|endoftext|>"]}}}]})");
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}).front(), 0);
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}).size(), 2u);
  EXPECT_EQ(tokenizer.encode("a").size(), 1u);
  EXPECT_EQ(tokenizer.beginning_of_text(), 0);
}

// MiniLM's file sets both; a plain encode goes without.
TEST(Tokenizer, TruncationAndPaddingOnlyWhenAsked) {
  auto json = nlohmann::ordered_json::parse(trained().to_json());
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 6}}}, {"direction", "Left"}, {"pad_id", 0}, {"pad_type_id", 0}};
  json["post_processor"] = nlohmann::json::parse(R"({"type":"TemplateProcessing","single":[
     {"SpecialToken":{"id":"<|endoftext|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],
     "special_tokens":{"<|endoftext|>":{"id":"<|endoftext|>","ids":[0],"tokens":["<|endoftext|>"]}}})");
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  const auto ids = tokenizer.encode("QQQQQQQQ");
  ASSERT_EQ(ids.size(), 8u);
  const int32_t z = ids[0];
  EXPECT_THAT(tokenizer.encode("QQQQQQQQ", {.truncate = true}), ElementsAre(z, z, z, z));
  EXPECT_THAT(tokenizer.encode("QQQQQQQQ", {.add_special = true, .truncate = true}), ElementsAre(0, z, z, z));
  EXPECT_THAT(tokenizer.encode("QQ", {.truncate = true, .pad = true}), ElementsAre(0, 0, 0, 0, z, z));
  EXPECT_EQ(tokenizer.encode_with_offsets("QQ", {.pad = true}).size(), 6u);
  EXPECT_EQ(tokenizer.encode_with_offsets("QQQQQQQQ", {.truncate = true}).size(), 4u);
  json["truncation"]["direction"] = "Left";
  EXPECT_EQ(Tokenizer::from_json(json.dump()).encode("QQQQa", {.truncate = true}).back(),
            tokenizer.id_of("a"));
}

TEST(Tokenizer, SavedAndLoadedIsTheSame) {
  const auto path = std::filesystem::temp_directory_path() / "megalith_tokenizer_test.json";
  const Tokenizer tokenizer = trained("llama3");
  tokenizer.save(path);
  const Tokenizer loaded = Tokenizer::load(path);
  EXPECT_EQ(loaded.to_json(), tokenizer.to_json());
  EXPECT_EQ(loaded.encode(kEnglish), tokenizer.encode(kEnglish));
  std::filesystem::remove(path);
}

TEST(Tokenizer, UnknownIdsAreErrors) {
  const Tokenizer tokenizer = trained();
  for (const int32_t id : {-1, static_cast<int32_t>(tokenizer.vocab_size()), 1 << 30}) {
    const std::vector<int32_t> ids = {id};
    EXPECT_THROW(tokenizer.decode(ids), InputError);
    EXPECT_THROW(StreamingDecoder(tokenizer).push(id), InputError);
  }
}

}  // namespace
}  // namespace megalith
