#include "megalith/text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "tests/text/fixture.h"

namespace megalith {
namespace {

using testing::fixture;

std::vector<std::string> merges(const Tokenizer& tokenizer) {
  std::vector<std::string> result;
  const auto json = nlohmann::ordered_json::parse(tokenizer.to_json());
  for (const auto& merge : json["model"]["merges"]) {
    result.push_back(merge[0].get<std::string>() + "+" + merge[1].get<std::string>());
  }
  return result;
}

std::string random_words(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const size_t length = 1 + random() % 7;
    for (size_t k = 0; k < length; ++k) text.push_back(static_cast<char>('a' + random() % 4));
    text.push_back(random() % 10 == 0 ? '\n' : ' ');
  }
  return text;
}

TEST(BpeTrainer, CountsBeyond32Bits) {
  BpeTrainer trainer({.vocabulary_size = 260});
  trainer.add_word("ab", 5'000'000'000);
  trainer.add_word("cd", 3'000'000'000);
  trainer.add_word("ac", 4'000'000'000);
  EXPECT_THAT(merges(trainer.train()), ::testing::ElementsAre("a+b", "a+c", "c+d"));
}

TEST(BpeTrainer, TiesGoToTheSmallestIds) {
  BpeTrainer trainer({.vocabulary_size = 261});
  for (const char* word : {"xy", "ba", "ab", "zz"}) trainer.add_word(word, 3);
  EXPECT_THAT(merges(trainer.train()), ::testing::ElementsAre("a+b", "b+a", "x+y", "z+z"));
}

// Counts all pairs anew for each merge: the definition.
std::vector<std::string> train_plainly(const std::map<std::string, int64_t>& words, int count) {
  std::vector<std::pair<std::vector<std::string>, int64_t>> parts;
  std::map<std::string, int> ids;
  for (int c = 0; c < 128; ++c) ids[std::string(1, static_cast<char>(c))] = c;
  for (const auto& [word, times] : words) {
    std::vector<std::string> letters;
    for (const char c : word) letters.emplace_back(1, c);
    parts.emplace_back(letters, times);
  }
  std::vector<std::string> result;
  for (int merge = 0; merge < count; ++merge) {
    std::map<std::pair<int, int>, std::pair<int64_t, std::pair<std::string, std::string>>> pairs;
    for (const auto& [word, times] : parts) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        auto& entry = pairs[{ids[word[i]], ids[word[i + 1]]}];
        entry.first += times;
        entry.second = {word[i], word[i + 1]};
      }
    }
    const auto best = std::max_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
      return a.second.first < b.second.first;
    });
    if (best == pairs.end()) break;
    const auto [left, right] = best->second.second;
    result.push_back(left + "+" + right);
    ids.try_emplace(left + right, static_cast<int>(ids.size()));
    for (auto& [word, times] : parts) {
      std::vector<std::string> joined;
      for (size_t i = 0; i < word.size(); ++i) {
        if (i + 1 < word.size() && word[i] == left && word[i + 1] == right) {
          joined.push_back(left + right);
          ++i;
        } else {
          joined.push_back(word[i]);
        }
      }
      word = joined;
    }
  }
  return result;
}

TEST(BpeTrainer, EqualsTheDefinition) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    std::map<std::string, int64_t> words;
    for (int i = 0; i < 60; ++i) {
      std::string word;
      const size_t length = 2 + random() % 9;
      for (size_t k = 0; k < length; ++k) word.push_back(static_cast<char>('a' + random() % 3));
      words[word] += 1 + random() % 5;
    }
    BpeTrainer trainer({.vocabulary_size = 256 + 1 + 40});
    for (const auto& [word, count] : words) trainer.add_word(word, count);
    auto learned = merges(trainer.train());
    auto expected = train_plainly(words, 80);
    // A merge whose text exists already adds no id, so compare as many as were learned.
    ASSERT_GE(learned.size(), 40u);
    expected.resize(learned.size());
    EXPECT_EQ(learned, expected) << "seed " << seed;
  }
}

TEST(BpeTrainer, EqualsTheTokenizersLibrary) {
  // Made by tests/text/make_trained_golden.py with BpeTrainer of tokenizers 0.23.
  const std::string text = read_file(fixture("train_text.txt"));
  for (const std::string pattern : {"gpt2", "llama3"}) {
    BpeTrainer trainer({.vocabulary_size = 1000, .pattern = pattern});
    trainer.add_document(text);
    const auto mine = nlohmann::json::parse(trainer.train().to_json());
    const auto theirs = nlohmann::json::parse(read_file(fixture("trained_" + pattern + ".json")));
    EXPECT_EQ(mine["model"]["merges"], theirs["merges"]) << pattern;
    EXPECT_EQ(mine["model"]["vocab"], theirs["vocab"]) << pattern;
  }
}

TEST(BpeTrainer, DoesNotDependOnThreadsOrGrouping) {
  const std::string text = random_words(1, 200000);
  const auto train = [&](int threads, size_t pieces) {
    BpeTrainer trainer({.vocabulary_size = 500, .threads = threads});
    // Documents are cut where words end, so that the words stay the same.
    size_t begin = 0;
    for (size_t i = 1; i <= pieces; ++i) {
      size_t end = i == pieces ? text.size() : text.find("\n", begin + text.size() / (pieces + 1));
      if (end == std::string::npos) end = text.size();
      if (end < text.size()) ++end;
      trainer.add_document(std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
    return trainer.train().to_json();
  };
  const std::string one = train(1, 1);
  EXPECT_EQ(train(2, 1), one);
  EXPECT_EQ(train(3, 7), one);
}

TEST(BpeTrainer, OneLineWithoutSpaces) {
  std::mt19937 random(2);
  std::string line(10'000'000, 'A');
  for (char& c : line) c = "ACGT"[random() % 4];
  [[maybe_unused]] const uint64_t before = peak_resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  BpeTrainer trainer({.vocabulary_size = 512, .threads = 2});
  trainer.add_document(line);
  const Tokenizer tokenizer = trainer.train();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(peak_resident_bytes() - std::min(before, peak_resident_bytes()), 20 * line.size());
#endif
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  const auto ids = tokenizer.encode(line);
  EXPECT_EQ(tokenizer.decode(ids), line);
  EXPECT_LT(ids.size(), line.size() / 3);
}

TEST(BpeTrainer, SpecialTokensNeverComeFromText) {
  BpeTrainer trainer({.vocabulary_size = 300, .special_tokens = {"<|endoftext|>", "the"}});
  trainer.add_document("the the the the then the <|endoftext|> <|endoftext|> <|endoftext|>");
  const Tokenizer tokenizer = trainer.train();
  EXPECT_EQ(tokenizer.id_of("the"), 1);
  for (const int32_t id : tokenizer.encode("the then <|endoftext|>the")) EXPECT_GT(id, 1);
}

TEST(BpeTrainer, StopsWhenTheTextHasNoMorePairs) {
  BpeTrainer trainer({.vocabulary_size = 1000});
  trainer.add_document("ab");
  EXPECT_EQ(trainer.train().vocab_size(), 258);
  BpeTrainer nothing({.vocabulary_size = 1000});
  EXPECT_EQ(nothing.train().vocab_size(), 257);
}

TEST(BpeTrainer, RefusesWrongOptions) {
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 256}), InputError);
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 1000, .special_tokens = {"a"}}), InputError);
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 1000, .special_tokens = {""}}), InputError);
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 1000, .special_tokens = {"xx", "xx"}}), InputError);
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 1000, .special_tokens = {"čau"}}), InputError);
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 1000, .pattern = "gpt5"}), InputError);
}

}  // namespace
}  // namespace megalith
