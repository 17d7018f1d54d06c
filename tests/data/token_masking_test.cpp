#include "megalith/data/token_masking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "megalith/base/error.h"
#include "megalith/data/batch_source.h"
#include "tests/data/temporary_folder.h"

namespace megalith {
namespace {

// Words w0 .. w99, of which w7 and [MASK] (100) are special.
Tokenizer words(const std::string& mask_token = "[MASK]") {
  std::string vocabulary;
  for (int i = 0; i < 100; ++i) vocabulary += fmt::format("\"w{}\": {}, ", i, i);
  const auto added = [](const std::string& text, int id) {
    return fmt::format(R"({{"id": {}, "content": "{}", "single_word": false, "lstrip": false,
                            "rstrip": false, "normalized": false, "special": true}})",
                       id, text);
  };
  return Tokenizer::from_json(fmt::format(R"({{"version": "1.0", "added_tokens": [{}, {}],
      "pre_tokenizer": {{"type": "Whitespace"}},
      "model": {{"type": "WordLevel", "unk_token": "w0", "vocab": {{{} "{}": 100}}}}}})",
                                          added("w7", 7), added(mask_token, 100), vocabulary, mask_token));
}

struct Sample {
  std::vector<int32_t> tokens, targets;
  std::vector<float> loss_mask;
  int64_t predicted = 0;
};

Sample masked(const TokenMasking& masking, uint64_t number, std::vector<int32_t> tokens) {
  Sample sample{tokens, std::vector<int32_t>(tokens.size(), -5), std::vector<float>(tokens.size(), 0.5f)};
  sample.predicted = masking.apply(number, sample.tokens, sample.targets, sample.loss_mask);
  return sample;
}

// Within five standard deviations of a binomial count.
void expect_share(int64_t count, int64_t of, double share) {
  const double deviation = std::sqrt(static_cast<double>(of) * share * (1 - share));
  EXPECT_NEAR(static_cast<double>(count), static_cast<double>(of) * share, 5 * deviation) << "of " << of;
}

TEST(TokenMasking, HidesTheSharesOfBert) {
  const TokenMasking masking(words(), "", 0.15, 11);
  std::vector<int32_t> text(100);
  std::iota(text.begin(), text.end(), 0);
  int64_t predicted = 0, hidden = 0, replaced = 0;
  std::vector<int64_t> replacements(101);
  constexpr int64_t kSamples = 4000;
  for (uint64_t number = 0; number < kSamples; ++number) {
    const Sample sample = masked(masking, number, text);
    EXPECT_EQ(sample.targets, text);
    EXPECT_EQ(sample.predicted, std::accumulate(sample.loss_mask.begin(), sample.loss_mask.end(), 0.0f));
    EXPECT_EQ(sample.loss_mask[7], 0.0f) << "a special token";
    predicted += sample.predicted;
    for (size_t t = 0; t < text.size(); ++t) {
      if (sample.loss_mask[t] == 0) {
        ASSERT_EQ(sample.tokens[t], text[t]) << "sample " << number << ", token " << t;
      } else if (sample.tokens[t] == 100) {
        ++hidden;
      } else if (sample.tokens[t] != text[t]) {
        ++replaced;
        ++replacements[static_cast<size_t>(sample.tokens[t])];
      }
    }
  }
  expect_share(predicted, 99 * kSamples, 0.15);
  expect_share(hidden, predicted, 0.8 + 0.1 / 101);  // any token may also be the mask
  expect_share(replaced, predicted, 0.1 * 99 / 101);
  for (size_t id = 0; id < 100; ++id) EXPECT_GT(replacements[id], 0) << "token " << id;
}

TEST(TokenMasking, DependsOnSeedAndSampleAlone) {
  const std::vector<int32_t> text(64, 3);
  const TokenMasking masking(words(), "", 0.15, 11), same(words(), "[MASK]", 0.15, 11),
      other(words(), "", 0.15, 12);
  EXPECT_EQ(masked(masking, 5, text).tokens, masked(same, 5, text).tokens);
  EXPECT_NE(masked(masking, 5, text).loss_mask, masked(masking, 6, text).loss_mask);
  EXPECT_NE(masked(masking, 5, text).loss_mask, masked(other, 5, text).loss_mask);
}

TEST(TokenMasking, PredictsAtLeastOneTokenThatIsNotSpecial) {
  const TokenMasking masking(words(), "", 1e-6, 11);
  for (uint64_t number = 0; number < 50; ++number) {
    const Sample sample = masked(masking, number, {7, 1, 100, 2, 7});
    EXPECT_EQ(sample.predicted, 1);
    EXPECT_EQ(sample.loss_mask[1] + sample.loss_mask[3], 1.0f);
  }
  EXPECT_EQ(masked(masking, 1, {7, 100}).predicted, 0);
  const TokenMasking all(words(), "", 1.0, 11);
  EXPECT_EQ(masked(all, 0, {1, 2, 7, 3}).predicted, 3);
}

TEST(TokenMasking, WantsATokenThatHides) {
  EXPECT_NO_THROW(TokenMasking(words("<mask>"), "", 0.15, 1));
  EXPECT_NO_THROW(TokenMasking(words("<hide>"), "<hide>", 0.15, 1));
  try {
    const TokenMasking masking(words("<hide>"), "", 0.15, 1);
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("has no [MASK] or <mask>; name one of its tokens in data.mask_token"));
  }
  EXPECT_THROW(TokenMasking(words(), "<mask>", 0.15, 1), InputError);
}

using TokenMaskingBatches = testing::TemporaryFolderTest;

TEST_F(TokenMaskingBatches, TakeTheirTokensFromSamplesWhateverTheBatch) {
  counting_dataset("d", {40, 60});
  const BatchSourceOptions plain{.sequence_length = 8, .shuffle = false};
  BatchSourceOptions hiding = plain;
  hiding.masking = std::make_shared<TokenMasking>(words(), "", 0.3, 11);
  const std::vector<DatasetEntry> entries = {{(folder / "d").string()}};
  const auto texts = open_batch_sources(entries, {}, {}, "", plain),
             sources = open_batch_sources(entries, {}, {}, "", hiding);
  Batch text, whole, one;
  texts.train->fill(0, 10, text);
  sources.train->fill(0, 10, whole);
  EXPECT_EQ(whole.targets, text.tokens);
  int64_t predicted = 0;
  for (uint64_t row = 0; row < 10; ++row) {
    sources.train->fill(row, 1, one);
    predicted += one.loss_tokens;
    for (size_t t = 0; t < 8; ++t) ASSERT_EQ(one.tokens[t], whole.tokens[row * 8 + t]) << "row " << row;
  }
  EXPECT_EQ(predicted, whole.loss_tokens);
  EXPECT_LT(whole.loss_tokens, 80);
}

}  // namespace
}  // namespace megalith
