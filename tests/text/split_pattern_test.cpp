// The hand-written splitters against PCRE2 with the same pattern.
#include "megalith/text/split_pattern.h"

#include <gtest/gtest.h>

#include <random>

#include "megalith/base/utf8.h"
#include "megalith/text/pre_tokenizer.h"
#include "megalith/text/stretch.h"

namespace megalith {
namespace {

std::vector<std::string> pieces(std::string_view text, const std::vector<size_t>& ends) {
  std::vector<std::string> result;
  size_t begin = 0;
  for (const size_t end : ends) {
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

std::vector<std::string> by_regex(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  std::vector<size_t> ends;
  size_t at = 0, begin = 0, end = 0;
  while (at < text.size() && regex.find(text, at, begin, end)) {
    EXPECT_EQ(begin, at) << "the pattern leaves a gap";
    ends.push_back(end);
    at = end;
  }
  return pieces(text, ends);
}

std::vector<std::string> by_hand(FastSplitter splitter, std::string_view text) {
  std::vector<size_t> ends;
  split_fast(splitter, text, 0, ends);
  return pieces(text, ends);
}

const std::vector<std::pair<FastSplitter, std::string_view>>& splitters() {
  static const std::vector<std::pair<FastSplitter, std::string_view>> all = {
      {FastSplitter::gpt2, kGpt2Pattern}, {FastSplitter::llama3, kLlama3Pattern}};
  return all;
}

// Strings of characters that the patterns treat differently, and rare ones of each kind.
std::string random_text(std::mt19937& random, size_t characters) {
  static const std::vector<uint32_t> interesting = {
      'a',    'Z',    's',    'S',    't',     'T',     'r',     'e',     'E',    'v',    'm',    'l',
      'L',    'd',    '0',    '9',    ' ',     ' ',     ' ',     '\n',    '\r',   '\t',   '\v',   '\f',
      '\'',   '\'',   '!',    '.',    '_',     0x00,    0x1c,    0x1f,    0x7f,   0x85,   0xa0,   0xad,
      0xaa,   0xb2,   0xbd,   0xe9,   0x17f,   0x130,   0x2019,  0x200b,  0x200d, 0x2028, 0x2029, 0x202f,
      0x3000, 0x1680, 0x180e, 0x2000, 0x200a,  0xfeff,  0x301,   0x661,   0x967,  0x216b, 0x4e2d, 0x3007,
      0xac00, 0xe000, 0xfffd, 0xffff, 0x10000, 0x1d400, 0x1f600, 0x10ffff};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    uint32_t c = 0;
    switch (random() % 8) {
      case 0:
        c = random() % 0x3000;
        break;
      case 1:
        c = random() % 0x110000;
        if (c >= 0xD800 && c <= 0xDFFF) c = '-';
        break;
      default:
        c = interesting[random() % interesting.size()];
    }
    append_utf8(text, c);
  }
  return text;
}

TEST(SplitPattern, HandWrittenEqualsPcre2OnRandomText) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = random_text(random, 1 + random() % 24);
    for (const auto& [splitter, pattern] : splitters()) {
      ASSERT_EQ(by_hand(splitter, text), by_regex(pattern, text)) << "round " << round;
    }
  }
}

TEST(SplitPattern, EveryCharacterHasTheClassThatPcre2GivesIt) {
  // Each character between letters, digits, spaces: a wrong class moves a bound.
  std::string text;
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text += "a";
    append_utf8(text, c);
    text += "1";
    append_utf8(text, c);
    text += " ";
    if (text.size() > 60000 || c == 0x10FFFF) {
      for (const auto& [splitter, pattern] : splitters()) {
        ASSERT_EQ(by_hand(splitter, text), by_regex(pattern, text)) << "near U+" << std::hex << c;
      }
      text.clear();
    }
  }
}

TEST(SplitPattern, Table) {
  using Pieces = std::vector<std::string>;
  const std::string nbsp = "\u00a0", wide = "\u3000";
  struct Row {
    std::string text;
    Pieces gpt2;
    Pieces llama3;
  };
  const std::vector<Row> rows = {
      {"'store", {"'s", "tore"}, {"'s", "tore"}},
      {"don'T  stop", {"don", "'", "T", " ", " stop"}, {"don", "'T", " ", " stop"}},
      {"I'VE 12345678 a", {"I", "'", "VE", " 12345678", " a"}, {"I", "'VE", " ", "123", "456", "78", " a"}},
      {"a   b\n\n  c", {"a", "  ", " b", "\n\n ", " c"}, {"a", "  ", " b", "\n\n", " ", " c"}},
      {"x\r\n\r\ny", {"x", "\r\n\r", "\n", "y"}, {"x", "\r\n\r\n", "y"}},
      {nbsp + wide + "z", {nbsp, wide, "z"}, {nbsp, wide + "z"}},
      {"१२३४ 二〇二四", {"१२३४", " 二", "〇", "二四"}, {"१२३", "४", " 二", "〇", "二四"}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(by_hand(FastSplitter::gpt2, row.text), row.gpt2) << row.text;
    EXPECT_EQ(by_hand(FastSplitter::llama3, row.text), row.llama3) << row.text;
  }
}

TEST(SplitPattern, WhiteSpaceIsTheUnicodeProperty) {
  // PCRE2's own \s holds U+180E, which has not been white space since Unicode 6.3.
  const std::string vowel_separator = "\u180e";
  size_t begin = 0, end = 0;
  EXPECT_FALSE(Regex("\\s", "test").find(vowel_separator, 0, begin, end));
  EXPECT_FALSE(Regex("[\\s]", "test").find(vowel_separator, 0, begin, end));
  EXPECT_TRUE(Regex("\\S", "test").find(vowel_separator, 0, begin, end));
  EXPECT_TRUE(Regex("[\\S]", "test").find(vowel_separator, 0, begin, end));
  EXPECT_TRUE(Regex("[^\\s\\p{L}]", "test").find(vowel_separator, 0, begin, end));
  EXPECT_TRUE(Regex("\\s", "test").find("\u3000", 0, begin, end));
  EXPECT_TRUE(Regex("[[:alpha:]\\s]", "test").find(" ", 0, begin, end));
  EXPECT_TRUE(Regex("^\\\\s$", "test").find("\\s", 0, begin, end)) << "an escaped backslash is no class";
}

TEST(SplitPattern, CutsChangeNothing) {
  std::mt19937 random(11);
  int cuts = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = random_text(random, 1 + random() % 20);
    // Give cuts a chance.
    if (round % 2 == 0) text += "ab cd" + random_text(random, 3) + "!\nx" + random_text(random, 3) + "。\n中";
    for (size_t limit = 1; limit <= text.size(); limit += 3) {
      const size_t cut = safe_cut(text, limit);
      ASSERT_LE(cut, limit);
      if (cut == 0) continue;
      ++cuts;
      for (const auto& [splitter, pattern] : splitters()) {
        auto joined = by_hand(splitter, std::string_view(text).substr(0, cut));
        const auto second = by_hand(splitter, std::string_view(text).substr(cut));
        joined.insert(joined.end(), second.begin(), second.end());
        ASSERT_EQ(joined, by_hand(splitter, text)) << text << " cut at " << cut;
      }
    }
  }
  EXPECT_GT(cuts, 20000);
}

TEST(SplitPattern, BehaviorsOfASplit) {
  const auto split = [](SplitBehavior behavior, bool invert, std::string_view text, bool is_regex = true) {
    const PreTokenizer pre_tokenizer({{.kind = PreTokenizerKind::split,
                                       .element = "test",
                                       .pattern = {"-", is_regex},
                                       .invert = invert,
                                       .behavior = behavior}},
                                     false);
    std::vector<size_t> marked, ends, scratch;
    pre_tokenizer.split(text, marked, scratch);
    std::vector<std::string> result;
    size_t begin = 0;
    for (const size_t end : marked) {
      if (!is_dropped(end)) result.emplace_back(text.substr(begin, end_of(end) - begin));
      begin = end_of(end);
    }
    return result;
  };
  // The values of the tokenizers library's own documentation.
  using Pieces = std::vector<std::string>;
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split(SplitBehavior::isolated, false, text),
            (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::merged_with_previous, false, text),
            (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::merged_with_next, false, text),
            (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(SplitBehavior::contiguous, false, text), (Pieces{"the", "-", "final", "--", "countdown"}));
  for (const bool is_regex : {true, false}) {
    EXPECT_EQ(split(SplitBehavior::removed, false, text, is_regex), (Pieces{"the", "final", "countdown"}));
    EXPECT_EQ(split(SplitBehavior::removed, true, text, is_regex), (Pieces{"-", "-", "-"}));
  }
}

}  // namespace
}  // namespace megalith
