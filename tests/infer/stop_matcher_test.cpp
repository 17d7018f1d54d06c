#include "megalith/infer/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "megalith/base/error.h"

namespace megalith {
namespace {

struct Shown {
  std::vector<std::string> parts;
  std::string text;
  bool stopped = false;
};

Shown feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Shown shown;
  for (const std::string& piece : pieces) {
    if (matcher.stopped()) break;
    shown.parts.push_back(matcher.push(piece));
  }
  shown.stopped = matcher.stopped();
  if (!shown.stopped) shown.parts.push_back(matcher.flush());
  for (const std::string& part : shown.parts) shown.text += part;
  return shown;
}

TEST(StopMatcher, FindsAStopThatSpansPieces) {
  const Shown shown = feed({"4 5 6"}, {"1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7"});
  EXPECT_TRUE(shown.stopped);
  EXPECT_EQ(shown.text, "1 2 3 ");
  // "4 " and "5 " were held back, not shown and then regretted.
  EXPECT_EQ(shown.parts, (std::vector<std::string>{"1 ", "2 ", "3 ", "", "", ""}));
}

TEST(StopMatcher, FindsAStopThatIsOnePieceAndOneInsideAPiece) {
  EXPECT_EQ(feed({"4 "}, {"1 ", "4 ", "5 "}).text, "1 ");
  const Shown inside = feed({"dvance"}, {"an ", "advanced", " course"});
  EXPECT_TRUE(inside.stopped);
  EXPECT_EQ(inside.text, "an a");
}

TEST(StopMatcher, OfTwoStopsTheOneThatCompletesFirstEndsTheText) {
  EXPECT_EQ(feed({"ab", "abc"}, {"xab", "c"}).text, "x");
  EXPECT_EQ(feed({"abc", "ab"}, {"xa", "b"}).text, "x");
  // "abcd" begins earlier, but within one piece the earlier start wins.
  EXPECT_EQ(feed({"c", "abcd"}, {"xabcd"}).text, "x");
}

TEST(StopMatcher, TextHeldBackComesOutAtTheEnd) {
  const Shown shown = feed({"blue\nZZZZ"}, {"red ", "green ", "blue"});
  EXPECT_FALSE(shown.stopped);
  EXPECT_EQ(shown.text, "red green blue");
  EXPECT_EQ(shown.parts, (std::vector<std::string>{"red ", "green ", "", "blue"}));
  EXPECT_EQ(feed({"\n"}, {"?\n"}).text, "?");
  // Held back, then refuted: it comes with what refuted it.
  EXPECT_EQ(feed({"aab"}, {"aa", "aa", "c"}).parts, (std::vector<std::string>{"", "aa", "aac", ""}));
}

TEST(StopMatcher, AStopOfSeveralByteCharactersIsWhole) {
  EXPECT_EQ(feed({"\U0001F600!"}, {"a\U0001F600", "\U0001F601"}).text, "a\U0001F600\U0001F601");
  EXPECT_EQ(feed({"\U0001F600!"}, {"a\U0001F600", "!b"}).text, "a");
  // Half an emoji could cut the text inside a character.
  EXPECT_THROW(StopMatcher({"\x98\x80"}), InputError);
  EXPECT_THROW(StopMatcher({"\xF0\x9F"}), InputError);
}

TEST(StopMatcher, RefusesAnEmptyStop) {
  EXPECT_THROW(StopMatcher({"a", ""}), InputError);
}

TEST(StopMatcher, AfterAStopNothingComesOut) {
  StopMatcher matcher({"b"});
  EXPECT_EQ(matcher.push("abc"), "a");
  EXPECT_EQ(matcher.push("d"), "");
  EXPECT_EQ(matcher.flush(), "");
}

// Over random texts of two letters (so that stops overlap themselves and each other), pieces and stops:
// nothing is shown that a search over the whole text so far would take back, and nothing else is held back.
TEST(StopMatcher, EqualsASearchOverTheWholeText) {
  std::mt19937 random(7);
  const auto letters = [&](size_t least, size_t most) {
    std::string text(least + random() % (most - least + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int stopped = 0, flushed = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    const size_t count = round % 50 == 0 ? 100 : random() % 4;
    for (size_t i = 0; i < count; ++i) stops.push_back(letters(1, 9));
    StopMatcher matcher(stops);
    std::string text, shown;
    for (int piece = 0; piece < 6 && !matcher.stopped(); ++piece) {
      const std::string next = letters(0, 4);
      const size_t before = text.size();
      text += next;
      shown += matcher.push(next);
      // The earliest of the stops that are complete now; none was before this piece.
      size_t expected = std::string::npos;
      for (const std::string& stop : stops) expected = std::min(expected, text.find(stop));
      ASSERT_EQ(matcher.stopped(), expected != std::string::npos) << text;
      if (matcher.stopped()) {
        ASSERT_EQ(shown, text.substr(0, expected)) << "before the piece: " << before;
        break;
      }
      // Held back is the longest end that begins a stop.
      size_t held = 0;
      for (const std::string& stop : stops) {
        for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
          if (text.ends_with(stop.substr(0, n))) held = std::max(held, n);
        }
      }
      ASSERT_EQ(shown, text.substr(0, text.size() - held)) << text;
    }
    if (matcher.stopped()) {
      ++stopped;
    } else {
      const std::string rest = matcher.flush();
      if (!rest.empty()) ++flushed;
      ASSERT_EQ(shown + rest, text);
    }
  }
  EXPECT_GT(stopped, 500);
  EXPECT_GT(flushed, 500);
}

}  // namespace
}  // namespace megalith
