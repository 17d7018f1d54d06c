// SentencePiece models and tiktoken files against their own libraries
// (tests/text/make_sentencepiece_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/utf8.h"
#include "megalith/text/sentencepiece_file.h"
#include "megalith/text/tiktoken_file.h"
#include "megalith/text/tokenizer.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using testing::fixture;
using ::testing::HasSubstr;

Tokenizer load(const std::string& name) {
  return Tokenizer::load(fixture(name), name.ends_with(".tiktoken") ? "cl100k" : "");
}

TEST(ModelFiles, IdsAndTextsOfTheirOwnLibraries) {
  std::ifstream rows(fixture("model_files.jsonl"));
  std::map<std::string, Tokenizer> loaded;
  int count = 0;
  for (std::string line; std::getline(rows, line); ++count) {
    const Json row = Json::parse(line);
    const std::string name = row[0], text = row[1], decoded = row[3];
    const auto ids = row[2].get<std::vector<int32_t>>();
    const Tokenizer& tokenizer = loaded.try_emplace(name, load(name)).first->second;
    ASSERT_EQ(tokenizer.encode(text), ids) << line;
    ASSERT_EQ(tokenizer.encode_parallel(text, 2), ids) << line;
    const auto spans = tokenizer.encode_with_offsets(text);
    ASSERT_EQ(spans.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(spans[i].id, ids[i]);
      ASSERT_LE(spans[i].byte_begin, spans[i].byte_end);
      ASSERT_LE(spans[i].byte_end, text.size());
    }
    // SentencePiece shows unknown text as " ⁇ ", where here the token's own text stands.
    if (decoded.find("\xE2\x81\x87") == std::string::npos) {
      ASSERT_EQ(tokenizer.decode(ids), decoded) << line;
    }
    StreamingDecoder stream(tokenizer);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    ASSERT_EQ(streamed + stream.flush(), replace_invalid_utf8(tokenizer.decode(ids))) << line;
  }
  EXPECT_EQ(count, 7 * 31);
}

// The tokenizer.json that is written gives the same ids where its steps can say the same.
TEST(ModelFiles, WrittenAsTokenizerJson) {
  for (const std::string name : {"sp_unigram.model", "sp_bpe.model", "ranks.tiktoken"}) {
    const Tokenizer tokenizer = load(name), written = Tokenizer::from_json(tokenizer.to_json());
    for (const std::string text : {"the lo kami's", " the  lo ", "Hello ½ 字です", "lololo"})
      EXPECT_EQ(written.encode(text), tokenizer.encode(text)) << name << ": " << text;
    EXPECT_EQ(written.vocab_size(), tokenizer.vocab_size());
  }
}

TEST(ModelFiles, ContinuedTextKeepsItsSpace) {
  const Tokenizer tokenizer = load("sp_bpe.model");
  const auto ids = tokenizer.encode("the lo");
  StreamingDecoder stream(tokenizer);
  stream.follow(std::span(ids).first(1));
  std::string text;
  for (size_t i = 1; i < ids.size(); ++i) text += stream.push(ids[i]);
  EXPECT_EQ(tokenizer.decode(std::span(ids).first(1)) + text + stream.flush(), "the lo");
}

TEST(ModelFiles, BadBytesComeBack) {
  const std::string text = "the \xFF\xFE lo\xC3 \xE2\x96";
  for (const std::string name : {"sp_bpe_bytes.model", "ranks.tiktoken"}) {
    const Tokenizer tokenizer = load(name);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
  }
  const Tokenizer unigram = load("sp_unigram.model");
  EXPECT_EQ(unigram.encode("\xFF\xFE"), std::vector<int32_t>{0});
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelFiles, ErrorsNameTheFile) {
  EXPECT_THAT(error_of([] { Tokenizer::load(fixture("ranks.tiktoken")); }),
              HasSubstr("one of 600 ranks is not known; name the pattern"));
  EXPECT_THAT(error_of([] { Tokenizer::load(fixture("ranks.tiktoken"), "gpt9"); }),
              HasSubstr("unknown split pattern 'gpt9'"));
  std::deque<std::string> storage;
  EXPECT_THAT(error_of([&] { read_tiktoken_file("YQ== 0\nnonsense\n", "gpt2", "file", storage); }),
              HasSubstr("file, line 2"));
  EXPECT_THAT(error_of([] { read_sentencepiece_model("\x0A\x03\x0A\x01", "file"); }),
              HasSubstr("file: not a SentencePiece model, or a damaged one"));
}

// Damaged files: always an error or a tokenizer that works.
TEST(ModelFiles, MutatedFiles) {
  std::mt19937 random(7);
  int loaded = 0, refused = 0;
  for (const std::string name : {"sp_unigram.model", "sp_bpe_bytes.model", "ranks.tiktoken"}) {
    const std::string original = read_file(fixture(name));
    for (int round = 0; round < 1500; ++round) {
      std::string bytes = original;
      for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
        const size_t at = random() % bytes.size();
        if (random() % 2 == 0) {
          bytes[at] = static_cast<char>(random());
        } else {
          bytes.erase(at, 1 + random() % 30);
        }
      }
      std::deque<std::string> storage;
      try {
        const Tokenizer tokenizer = Tokenizer::from_description(
            name.ends_with(".model") ? read_sentencepiece_model(bytes, name)
                                     : read_tiktoken_file(bytes, "gpt2", name, storage));
        const auto ids = tokenizer.encode("the lo <sep> kami's 字です \xFF x\xE2\x96\x81y", true);
        tokenizer.decode(ids);
        ++loaded;
      } catch (const InputError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(loaded, 300);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace megalith
