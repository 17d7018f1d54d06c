#include "megalith/data/blend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "megalith/base/error.h"

namespace megalith {
namespace {

std::vector<uint64_t> counts(const Blend& blend, uint64_t samples) {
  std::vector<uint64_t> result(blend.weights().size());
  for (uint64_t i = 0; i < samples; ++i) {
    const Blend::Pick pick = blend.at(i);
    EXPECT_EQ(pick.index, result[pick.dataset]) << "sample " << i;
    ++result[pick.dataset];
  }
  return result;
}

TEST(Blend, CountsFollowTheWeights) {
  EXPECT_EQ(counts(Blend({0.3, 0.7}), 10), (std::vector<uint64_t>{3, 7}));
  EXPECT_EQ(counts(Blend({0.001, 0.999}), 2000), (std::vector<uint64_t>{2, 1998}));
  EXPECT_EQ(counts(Blend({0.0, 1.0, 0.0, 1.0}), 1000), (std::vector<uint64_t>{0, 500, 0, 500}));
  EXPECT_EQ(counts(Blend({0.2, 0.5}), 700), (std::vector<uint64_t>{200, 500}))
      << "weights of sum 0.7 are normalised";
}

TEST(Blend, FollowsTheGreedyRule) {
  const std::vector<double> weights = {0.1, 0.25, 0.65};
  std::vector<double> taken(3, 0.0);
  const Blend blend(weights);
  for (uint64_t i = 0; i < 20000; ++i) {
    const double scale = std::max<double>(1.0, static_cast<double>(i));
    size_t best = 0;
    for (size_t d = 1; d < 3; ++d) {
      if (weights[d] * scale - taken[d] > weights[best] * scale - taken[best]) best = d;
    }
    ASSERT_EQ(blend.at(i).dataset, best) << i;
    taken[best] += 1;
  }
}

TEST(Blend, AnyOrderOfAskingGivesTheSame) {
  const std::vector<double> weights = {3, 1, 0, 2.5};
  const Blend in_order(weights);
  std::vector<Blend::Pick> picks;
  for (uint64_t i = 0; i < 30000; ++i) picks.push_back(in_order.at(i));
  const Blend jumping(weights);
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const uint64_t i = random() % picks.size();
    ASSERT_EQ(jumping.at(i).dataset, picks[i].dataset);
    ASSERT_EQ(jumping.at(i).index, picks[i].index);
  }
}

TEST(Blend, RefusesBadWeights) {
  EXPECT_THROW(Blend({}), InputError);
  EXPECT_THROW(Blend({0.0, 0.0}), InputError);
  EXPECT_THROW(Blend({1.0, -0.1}), InputError);
  EXPECT_THROW(Blend({std::nan("")}), InputError);
  EXPECT_THROW(Blend({std::numeric_limits<double>::infinity()}), InputError);
}

}  // namespace
}  // namespace megalith
