#include "megalith/base/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace megalith {
namespace {

TEST(Philox, GivesTheAnswersOfTheAuthorsKnownAnswerTests) {
  // Random123's kat_vectors, philox4x32 with 10 rounds.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, NormalsHaveTheRightMoments) {
  const RandomStream stream(5, RandomUse::initialization, 9);
  constexpr int kCount = 400000;
  double sum = 0, squares = 0, fourth = 0;
  for (uint64_t block = 0; block < kCount / 4; ++block) {
    for (const float value : stream.normals(block)) {
      sum += value;
      squares += static_cast<double>(value) * value;
      fourth += std::pow(static_cast<double>(value), 4);
    }
  }
  // Standard errors: 1/sqrt(n) = 0.0016, sqrt(2/n) = 0.0022, sqrt(96/n) = 0.015; four of each.
  EXPECT_NEAR(sum / kCount, 0, 0.0064);
  EXPECT_NEAR(squares / kCount, 1, 0.009);
  EXPECT_NEAR(fourth / kCount, 3, 0.062);
}

TEST(RandomStream, UsesAndSeedsDoNotShareNumbers) {
  const RandomStream a(1, RandomUse::shuffle, 0), b(1, RandomUse::sampling, 0), c(2, RandomUse::shuffle, 0),
      d(1, RandomUse::shuffle, 1);
  EXPECT_NE(a.word64(0), b.word64(0));
  EXPECT_NE(a.word64(0), c.word64(0));
  EXPECT_NE(a.word64(0), d.word64(0));
}

TEST(RandomSequence, BelowIsUniform) {
  RandomSequence random(RandomStream(3, RandomUse::shuffle, 0));
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) counts[random.below(7)] += 1;
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);  // four standard deviations
}

}  // namespace
}  // namespace megalith
