#include "megalith/infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "megalith/base/error.h"

namespace megalith {
namespace {

int32_t sample(const SamplingOptions& options, const std::vector<float>& logits, uint64_t position = 0,
               const std::vector<int32_t>& history = {}) {
  return Sampler(options).sample(logits, history, position);
}

// Every token that comes within many positions.
std::set<int32_t> support(const SamplingOptions& options, const std::vector<float>& logits,
                          uint64_t draws = 4000) {
  Sampler sampler(options);
  std::set<int32_t> seen;
  for (uint64_t position = 0; position < draws; ++position) seen.insert(sampler.sample(logits, {}, position));
  return seen;
}

// Probabilities 0.4, 0.3, 0.2, 0.06, 0.04, not in this order.
const std::vector<double> kProbabilities = {0.06, 0.4, 0.2, 0.04, 0.3};
std::vector<float> logits() {
  std::vector<float> values;
  for (const double p : kProbabilities) values.push_back(static_cast<float>(std::log(p) + 2.5));
  return values;
}

TEST(Sampler, AllGreedyFormsAgree) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<SamplingOptions> greedy(6);
  greedy[0].temperature = 0;
  greedy[1].top_k = 1;
  greedy[2].top_p = 0;
  greedy[3].top_p = 1e-9;
  greedy[4].min_p = 1;
  greedy[5].temperature = 1e-9;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> values(17);
    for (float& value : values) value = normal(random);
    const auto best = static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
    for (size_t form = 0; form < greedy.size(); ++form) {
      greedy[form].seed = static_cast<uint64_t>(round);
      EXPECT_EQ(sample(greedy[form], values, 5), best) << "form " << form;
    }
  }
}

TEST(Sampler, TiesAreTakenByLowestId) {
  const std::vector<float> values = {1, 3, -2, 3, 3, 0};
  for (const auto& change : std::vector<std::function<void(SamplingOptions&)>>{
           [](SamplingOptions& o) { o.temperature = 0; }, [](SamplingOptions& o) { o.top_k = 1; },
           [](SamplingOptions& o) { o.top_p = 0; }, [](SamplingOptions& o) { o.top_p = 1e-9; }}) {
    SamplingOptions options;
    change(options);
    for (uint64_t position = 0; position < 20; ++position) EXPECT_EQ(sample(options, values, position), 1);
  }
  SamplingOptions two;
  two.top_k = 2;
  EXPECT_EQ(support(two, values), (std::set<int32_t>{1, 3}));
  const std::vector<float> equal(40, 0.25f);
  SamplingOptions greedy;
  greedy.temperature = 0;
  EXPECT_EQ(sample(greedy, equal), 0);
}

TEST(Sampler, FiltersKeepExactlyTheTokensTheyName) {
  const auto kept = [](const std::function<void(SamplingOptions&)>& change) {
    SamplingOptions options;
    change(options);
    return support(options, logits());
  };
  using Set = std::set<int32_t>;
  EXPECT_EQ(kept([](auto&) {}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_k = 2; }), (Set{1, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_k = 4; }), (Set{0, 1, 2, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_k = 1000; }), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.39; }), (Set{1}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.41; }), (Set{1, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.69; }), (Set{1, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.71; }), (Set{1, 2, 4}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.95; }), (Set{0, 1, 2, 4}));
  // 0.5 x 0.4 = 0.2, and 0.14 x 0.4 = 0.056.
  EXPECT_EQ(kept([](auto& o) { o.min_p = 0.51; }), (Set{1, 4}));
  EXPECT_EQ(kept([](auto& o) { o.min_p = 0.49; }), (Set{1, 2, 4}));
  EXPECT_EQ(kept([](auto& o) { o.min_p = 0.14; }), (Set{0, 1, 2, 4}));
  // In order: top-k 3 leaves 0.4, 0.3, 0.2, which are 4/9, 3/9, 2/9 to top-p.
  EXPECT_EQ(kept([](auto& o) {
              o.top_k = 3;
              o.top_p = 0.75;
            }),
            (Set{1, 4}));
  // Temperature comes before top-p: 0.1 leaves the most likely one with 0.946 of the probability.
  EXPECT_EQ(kept([](auto& o) {
              o.temperature = 0.1;
              o.top_p = 0.9;
            }),
            (Set{1}));
}

// Pearson's statistic over the counts of `draws` positions.
double chi_square(const SamplingOptions& options, const std::vector<double>& expected, uint64_t draws) {
  Sampler sampler(options);
  std::vector<double> counts(expected.size(), 0);
  const auto values = logits();
  for (uint64_t position = 0; position < draws; ++position)
    counts[static_cast<size_t>(sampler.sample(values, {}, position))] += 1;
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] * static_cast<double>(draws);
    if (mean > 0) {
      sum += (counts[i] - mean) * (counts[i] - mean) / mean;
    } else {
      EXPECT_EQ(counts[i], 0) << i;
    }
  }
  return sum;
}

TEST(Sampler, FrequenciesAreTheProbabilities) {
  // Chance of a larger value: 4 degrees of freedom, 23.5: 1e-4; 2 degrees, 18.4: 1e-4. Seeds are fixed, so
  // the outcome is too.
  constexpr uint64_t kDraws = 40000;
  for (const uint64_t seed : {0u, 1u, 77u}) {
    SamplingOptions options;
    options.seed = seed;
    EXPECT_LT(chi_square(options, kProbabilities, kDraws), 23.5);
    options.temperature = 2;
    std::vector<double> flattened;
    double sum = 0;
    for (const double p : kProbabilities) sum += std::sqrt(p);
    for (const double p : kProbabilities) flattened.push_back(std::sqrt(p) / sum);
    EXPECT_LT(chi_square(options, flattened, kDraws), 23.5);
    EXPECT_GT(chi_square(options, kProbabilities, kDraws), 1000);  // the statistic can tell
    options.temperature = 1;
    options.top_k = 3;
    EXPECT_LT(chi_square(options, {0, 4.0 / 9, 2.0 / 9, 0, 3.0 / 9}, kDraws), 18.4);
  }
}

TEST(Sampler, ExtremeTemperaturesGiveTheirLimits) {
  SamplingOptions cold;
  cold.temperature = 1e-9;
  EXPECT_EQ(support(cold, logits(), 200), (std::set<int32_t>{1}));
  cold.temperature = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(support(cold, logits(), 200), (std::set<int32_t>{1}));
  SamplingOptions hot;
  hot.temperature = 1e9;
  EXPECT_LT(chi_square(hot, std::vector<double>(5, 0.2), 40000), 23.5);
  // Logits as far apart as floats go.
  EXPECT_EQ(support(SamplingOptions(), {-3e38f, 3e38f, 0}, 200), (std::set<int32_t>{1}));
}

TEST(Sampler, AMinusInfiniteLogitIsNeverChosen) {
  const float never = -std::numeric_limits<float>::infinity();
  SamplingOptions hot;
  hot.temperature = 1e9;
  EXPECT_EQ(support(hot, {never, 1, never, 2}), (std::set<int32_t>{1, 3}));
}

TEST(Sampler, TheRepetitionPenaltyActsOnceATokenAndAlwaysDownwards) {
  SamplingOptions options;
  options.temperature = 0;
  options.repetition_penalty = 2;
  EXPECT_EQ(sample(options, {4, 3, -1}, 0, {0}), 1);           // 4 / 2 < 3
  EXPECT_EQ(sample(options, {4, 1.5f, -1}, 0, {0, 0, 0}), 0);  // 4 / 2 once, not 4 / 8
  EXPECT_EQ(sample(options, {-1, -1.5f}, 0, {0}), 1);          // -1 x 2 < -1.5
  EXPECT_EQ(sample(options, {4, 3, -1}, 0, {0, 1}), 0);        // 2 and 1.5
  options.repetition_penalty = 0.5;                            // the other way round
  EXPECT_EQ(sample(options, {4, 3, -1}, 0, {1}), 1);
  EXPECT_EQ(sample(options, {4, 3, -1}, 0, {-1, 3, 1 << 30}), 0);  // ids without a logit change nothing
}

TEST(Sampler, ASeedAndAPositionDecideTheDraw) {
  const std::vector<float> flat(1000, 0.0f);
  SamplingOptions a, b;
  a.seed = 11;
  b.seed = 12;
  Sampler forward(a), again(a), other(b);
  std::vector<int32_t> first, second, third;
  for (uint64_t p = 0; p < 50; ++p) {
    first.push_back(forward.sample(flat, {}, p));
    third.push_back(other.sample(flat, {}, p));
  }
  for (uint64_t p = 50; p-- > 0;) second.insert(second.begin(), again.sample(flat, {}, p));
  EXPECT_EQ(first, second);  // also in another order
  EXPECT_NE(first, third);
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 40u);
}

TEST(Sampler, NotANumberIsAnErrorThatNamesTheToken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    SamplingOptions options;
    options.temperature = temperature;
    try {
      sample(options, {1, 2, nan, 3});
      FAIL() << "NaN went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(dynamic_cast<const InputError*>(&error), nullptr) << "the user's input was not at fault";
      EXPECT_NE(std::string(error.what()).find("token 2"), std::string::npos) << error.what();
    }
    EXPECT_THROW(sample(options, {1, std::numeric_limits<float>::infinity()}), Error);
    EXPECT_THROW(sample(options, {-std::numeric_limits<float>::infinity()}), Error);
    EXPECT_THROW(sample(options, {}), Error);
  }
}

TEST(Sampler, WrongOptionsAreRefusedByNameAndRange) {
  const auto message = [](const std::function<void(SamplingOptions&)>& change) -> std::string {
    SamplingOptions options;
    change(options);
    try {
      Sampler sampler(options);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message([](auto& o) { o.temperature = -1; }),
            "temperature -1 is out of range; allowed is 0 or more");
  EXPECT_EQ(message([](auto& o) { o.top_k = -1; }), "top-k -1 is out of range; allowed is 0 or more");
  EXPECT_EQ(message([](auto& o) { o.top_p = 1.5; }), "top-p 1.5 is out of range; allowed is 0 to 1");
  EXPECT_EQ(message([](auto& o) { o.min_p = -0.1; }), "min-p -0.1 is out of range; allowed is 0 to 1");
  EXPECT_EQ(message([](auto& o) { o.repetition_penalty = 0; }),
            "repetition-penalty 0 is out of range; allowed is above 0");
  EXPECT_NE(message([&](auto& o) { o.temperature = nan; }), "accepted");
  EXPECT_NE(message([](auto& o) { o.temperature = INFINITY; }), "accepted");
  EXPECT_NE(message([&](auto& o) { o.top_p = nan; }), "accepted");
  EXPECT_NE(message([&](auto& o) { o.min_p = nan; }), "accepted");
  EXPECT_NE(message([&](auto& o) { o.repetition_penalty = nan; }), "accepted");
}

}  // namespace
}  // namespace megalith
