#include "megalith/base/utf8.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

TEST(Utf8, ValidPrefixStopsAtTheFirstBadByte) {
  EXPECT_EQ(valid_utf8_prefix("plain text of more than eight bytes"), 35u);
  EXPECT_TRUE(is_valid_utf8("é中😀\U0010FFFF"));
  EXPECT_EQ(valid_utf8_prefix("ab\xFFz"), 2u);
  EXPECT_EQ(valid_utf8_prefix("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(valid_utf8_prefix("\xE0\x9F\xBF"), 0u);      // overlong
  EXPECT_EQ(valid_utf8_prefix("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(valid_utf8_prefix("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(valid_utf8_prefix("a\xE4\xB8"), 1u);         // cut
}

TEST(Utf8, CompletePrefixWaitsForUnfinishedCharactersOnly) {
  const std::string text = "a😀";
  for (size_t cut = 2; cut < text.size(); ++cut) EXPECT_EQ(complete_utf8_prefix(text.substr(0, cut)), 1u);
  EXPECT_EQ(complete_utf8_prefix(text), text.size());
  EXPECT_EQ(complete_utf8_prefix("a\xFF"), 2u);     // can never become valid
  EXPECT_EQ(complete_utf8_prefix("\x80\x80"), 2u);  // continuation bytes alone
  EXPECT_EQ(complete_utf8_prefix(""), 0u);
}

TEST(Utf8, ReplacementsAreThoseOfPython) {
  EXPECT_EQ(replace_invalid_utf8("a\xE4\xB8z"), "a\uFFFDz");              // one for the maximal part
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate: one a byte
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xFF\xFE"), "\uFFFD\uFFFD");
}

TEST(Utf8, AppendAndNextAreInverse) {
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    size_t offset = 0;
    ASSERT_EQ(next_code_point(text, offset), c);
    ASSERT_EQ(offset, text.size());
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

}  // namespace
}  // namespace megalith
