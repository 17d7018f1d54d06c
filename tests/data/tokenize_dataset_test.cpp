#include "megalith/data/tokenize_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/utf8.h"
#include "megalith/data/record_parser.h"
#include "megalith/text/bpe_trainer.h"
#include "tests/data/temporary_folder.h"

namespace megalith {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizeDatasetTest : public testing::TemporaryFolderTest {
 protected:
  TokenizeDatasetTest() : tokenizer(BpeTrainer({.vocabulary_size = 257}).train()) {}

  TokenizeOptions options(const std::string& input) const {
    return {.inputs = {input}, .output_prefix = (folder / "out").string()};
  }
  std::vector<std::string> documents(const std::string& key = "text") const {
    const IndexedDataset dataset(folder / ("out_" + key + "_document"));
    std::vector<std::string> result;
    for (uint64_t d = 0; d < dataset.documents(); ++d)
      result.push_back(tokenizer.decode(dataset.document(d)));
    return result;
  }
  Tokenizer tokenizer;
};

TEST_F(TokenizeDatasetTest, OneDatasetForEachKey) {
  std::string lines;
  for (int i = 0; i < 10; ++i) {
    lines += R"({"text":"t)" + std::to_string(i) + R"(","title":"T)" + std::to_string(i) + "\"" +
             (i == 4 ? "" : R"(,"note":"n)" + std::to_string(i) + "\"") + "}\n";
  }
  auto how = options(write_file("a.jsonl", lines));
  how.json_keys = {"text", "title", "note"};
  const TokenizeResult result = tokenize_dataset(tokenizer, how);
  EXPECT_EQ(documents("text").size(), 10u);
  EXPECT_EQ(documents("title").size(), 10u);
  EXPECT_EQ(documents("note").size(), 9u);
  EXPECT_EQ(documents("title")[7], "T7");
  EXPECT_EQ(result.outputs[2].missing, 1u);
  EXPECT_EQ(result.kept, 10u);
}

// The lines of a record that other loaders stumbled over, and why each is refused.
TEST_F(TokenizeDatasetTest, EveryKindOfBadLine) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {R"("pretext")", "not an object"},
      {R"(["text",1])", "not an object"},
      {"7", "not an object"},
      {"null", "not an object"},
      {"true", "not an object"},
      {R"({"text":5})", "not a string"},
      {R"({"text":null})", "not a string"},
      {R"({"text":["x"]})", "not a string"},
      {R"({"text":"ok"})", ""},
      {R"({"text":"a","text":"b"})", ""},
      {"NaN", "bad JSON"},
      {R"({"text":NaN})", "bad JSON"},
      {std::string(1000, '['), "bad JSON"},
      {std::string(1000000, '['), "bad JSON"},
      {R"({"text":)" + std::string(100000, '{'), "bad JSON"},
      {R"({"text":"lone \ud83d"})", "bad JSON"},
      {R"({"text":"pair \ud83d\ude00"})", ""},
      {R"({"text":"zero \u0000 inside"})", ""},
      {"{\"text\":\"\xff\"}", "invalid UTF-8"},
      {R"({"text":""})", "empty text"},
      {R"({"other":"x"})", "missing key"},
      {"   ", "blank line"},
      {R"({"text":"cut)", "bad JSON"},
      {R"({"text":"two"} {"text":"objects"})", "bad JSON"},
  };
  std::string content;
  for (const auto& [line, reason] : lines) content += line + "\n";
  auto how = options(write_file("bad.jsonl", content));
  how.reject_file = (folder / "rejects.jsonl").string();
  const TokenizeResult result = tokenize_dataset(tokenizer, how);
  EXPECT_THAT(documents(), ElementsAre("ok", "a", "pair 😀", std::string("zero \0 inside", 13)));
  EXPECT_EQ(result.kept, 4u);
  EXPECT_EQ(result.dropped, lines.size() - 4);
  EXPECT_THAT(result.summary, HasSubstr("24 records: 4 kept, 20 dropped"));
  EXPECT_THAT(result.summary, HasSubstr("5 not an object (first: " + how.inputs[0] + ":1)"));
  std::vector<std::pair<size_t, std::string>> expected, rejected;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].second.empty()) expected.emplace_back(i + 1, lines[i].second);
  }
  std::ifstream rejects(how.reject_file);
  for (std::string line; std::getline(rejects, line);) {
    const auto json = nlohmann::json::parse(line);
    rejected.emplace_back(json["line"], json["reason"]);
    EXPECT_EQ(json["raw"].get<std::string>(), replace_invalid_utf8(lines[rejected.back().first - 1].first));
  }
  EXPECT_EQ(rejected, expected);
}

TEST_F(TokenizeDatasetTest, StrictEndsAtTheFirstBadRecord) {
  std::string lines;
  for (int i = 1; i <= 100; ++i) lines += i % 40 == 0 ? "{bad\n" : "{\"text\":\"x\"}\n";
  auto how = options(write_file("a.jsonl", lines));
  EXPECT_EQ(tokenize_dataset(tokenizer, how).dropped, 2u);
  std::filesystem::remove(folder / "out_text_document.idx");
  std::filesystem::remove(folder / "out_text_document.bin");
  how.strict = true;
  try {
    tokenize_dataset(tokenizer, how);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.jsonl:40: bad JSON"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out_text_document.idx"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out_text_document.bin.partial"));
}

TEST_F(TokenizeDatasetTest, WorkersDoNotShow) {
  std::mt19937 random(4);
  std::string lines;
  for (int i = 0; i < 5000; ++i) {
    nlohmann::json line = {{"text", "document " + std::to_string(i) + std::string(random() % 200, 'x')}};
    lines += random() % 50 == 0 ? "broken\n" : line.dump() + "\n";
  }
  std::string big;
  while (big.size() < (5u << 20)) big += "many words of a big document\n";
  auto how = options(write_file("a.jsonl", lines));
  how.inputs.push_back(write_file("big.txt", big));
  how.append_end_of_document = true;
  std::string bin, idx;
  for (const int workers : {1, 2, 3}) {
    how.workers = workers;
    tokenize_dataset(tokenizer, how);
    const std::string new_bin = read_file(folder / "out_text_document.bin");
    const std::string new_idx = read_file(folder / "out_text_document.idx");
    if (workers > 1) {
      EXPECT_TRUE(new_bin == bin && new_idx == idx) << workers << " workers";
    }
    bin = new_bin;
    idx = new_idx;
  }
  const IndexedDataset dataset(folder / "out_text_document");
  for (uint64_t d = 0; d < dataset.documents(); d += 97)
    EXPECT_EQ(dataset.document(d).back(), *tokenizer.end_of_document());
  EXPECT_EQ(dataset.document_length(dataset.documents() - 1), big.size() + 1);
}

TEST_F(TokenizeDatasetTest, NothingToKeepIsAnError) {
  EXPECT_THROW(tokenize_dataset(tokenizer, options(write_file("a.txt", ""))), InputError);
  EXPECT_THROW(tokenize_dataset(tokenizer, options(write_file("b.txt", "\xff\xfe"))), InputError);
  EXPECT_FALSE(std::filesystem::exists(folder / "out_text_document.idx"));
  auto how = options(write_file("c.txt", "x"));
  how.json_keys = {"a", "a"};
  EXPECT_THROW(tokenize_dataset(tokenizer, how), InputError);
  how.json_keys = {"a/b"};
  EXPECT_THROW(tokenize_dataset(tokenizer, how), InputError);
  how.json_keys = {"text"};
  how.workers = 0;
  EXPECT_THROW(tokenize_dataset(tokenizer, how), InputError);
}

TEST_F(TokenizeDatasetTest, MutatedLinesNeverCrash) {
  const std::string line =
      R"({"id": 17, "text": "Some \"quoted\" text \u00e9\ud83d\ude00 \n", "meta": {"a": [1, 2.5e3, null, true]}})";
  std::mt19937 random(8);
  const std::string characters = "{}[]\":,\\u0123456789-.eE tfn\xff\xc3\x80";
  RecordParser parser({"text"});
  ParsedRecord parsed;
  std::array<int, kRejectKinds + 1> kinds{};
  for (int round = 0; round < 20000; ++round) {
    RawRecord record{.file = 0, .line = 1, .json = true, .text = line};
    for (size_t edits = 1 + random() % 3; edits > 0 && !record.text.empty(); --edits) {
      const size_t at = random() % record.text.size();
      switch (random() % 3) {
        case 0:
          record.text[at] = characters[random() % characters.size()];
          break;
        case 1:
          record.text.erase(at, 1 + random() % 10);
          break;
        default:
          record.text.insert(at, line.substr(random() % line.size(), random() % 12));
      }
    }
    parser.parse(record, parsed);
    if (!parsed.reject) {
      EXPECT_TRUE(is_valid_utf8(*parsed.texts.at(0)));
    }
    ++kinds[parsed.reject ? static_cast<size_t>(*parsed.reject) : kRejectKinds];
  }
  EXPECT_GT(kinds[kRejectKinds], 1000);
  EXPECT_GT(kinds[static_cast<size_t>(Reject::bad_json)], 1000);
}

}  // namespace
}  // namespace megalith
