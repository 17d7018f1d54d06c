#include "megalith/data/gpt_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "megalith/base/error.h"
#include "tests/data/temporary_folder.h"

namespace megalith {
namespace {

using GptDatasetTest = testing::TemporaryFolderTest;
using Tokens = std::vector<int32_t>;

std::pair<Tokens, Tokens> sample(const GptDataset& dataset, uint64_t index) {
  const auto size = static_cast<size_t>(dataset.sequence_length() + 1);
  Tokens tokens(size, -1), starts(size, -1);
  dataset.sample(index, tokens, starts);
  return {tokens, starts};
}

TEST_F(GptDatasetTest, InFileOrderSamplesAreTheStream) {
  const auto data = counting_dataset("d", {3, 0, 5, 1, 4});  // 13 tokens.
  const GptDataset dataset(DatasetPart(data), {.sequence_length = 4, .shuffle = false});
  EXPECT_EQ(dataset.samples_per_pass(), 3u);
  const auto [tokens, starts] = sample(dataset, 0);
  EXPECT_EQ(tokens, (Tokens{0, 1, 2, 3, 4}));
  EXPECT_EQ(starts, (Tokens{0, 0, 0, 3, 3}));
  EXPECT_EQ(sample(dataset, 2).first, (Tokens{8, 9, 10, 11, 12}));
  EXPECT_EQ(sample(dataset, 2).second, (Tokens{0, 1, 1, 1, 1}));
  // The fourth goes over into the next epoch.
  EXPECT_EQ(sample(dataset, 3).first, (Tokens{12, 0, 1, 2, 3}));
  EXPECT_EQ(sample(dataset, 3).second, (Tokens{0, 1, 1, 1, 4}));
  EXPECT_EQ(dataset.epoch_of(3), 0u);
  EXPECT_EQ(dataset.epoch_of(4), 1u);
}

TEST_F(GptDatasetTest, EveryEpochHasEveryTokenOnce) {
  const auto data = counting_dataset("d", {7, 1, 20, 3, 0, 9, 16, 4, 4, 36});  // 100 tokens.
  const GptDataset dataset(DatasetPart(data), {.sequence_length = 10, .seed = 5});
  std::vector<Tokens> orders;
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    std::multiset<int32_t> seen;
    Tokens order;
    for (uint64_t i = 0; i < 10; ++i) {
      const auto tokens = sample(dataset, epoch * 10 + i).first;
      EXPECT_EQ(dataset.epoch_of(epoch * 10 + i), epoch);
      seen.insert(tokens.begin(), tokens.end() - 1);
      order.insert(order.end(), tokens.begin(), tokens.end() - 1);
    }
    EXPECT_EQ(seen.size(), 100u);
    EXPECT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), 100u);
    EXPECT_EQ(std::count(orders.begin(), orders.end(), order), 0) << "epoch " << epoch << " repeats an order";
    orders.push_back(order);
  }
}

TEST_F(GptDatasetTest, ASampleIsAFunctionOfItsIndex) {
  const auto data = counting_dataset("d", {5, 8, 13, 2, 40, 1, 30});  // 99 tokens: epochs do not fit T.
  const GptDatasetOptions options{.sequence_length = 7, .seed = 77, .dataset_number = 3};
  const GptDataset forward(DatasetPart(data), options);
  std::vector<std::pair<Tokens, Tokens>> samples;
  for (uint64_t i = 0; i < 200; ++i) samples.push_back(sample(forward, i));
  const GptDataset backward(DatasetPart(data), options);
  for (uint64_t i = 200; i-- > 0;) ASSERT_EQ(sample(backward, i), samples[i]) << i;
  std::thread other([&] {
    for (uint64_t i = 0; i < 200; ++i) ASSERT_EQ(sample(backward, i), samples[i]);
  });
  for (uint64_t i = 0; i < 200; ++i) ASSERT_EQ(sample(backward, i), samples[i]);
  other.join();
  const auto differs = [&](const GptDatasetOptions& changed) {
    const GptDataset dataset(DatasetPart(data), changed);
    int different = 0;
    for (uint64_t i = 0; i < 14; ++i) different += sample(dataset, i) != samples[i] ? 1 : 0;
    return different;
  };
  EXPECT_GT(differs({.sequence_length = 7, .seed = 78, .dataset_number = 3}), 7);
  EXPECT_GT(differs({.sequence_length = 7, .seed = 77, .dataset_number = 4}), 7);
}

TEST_F(GptDatasetTest, ADatasetShorterThanASampleRepeats) {
  const auto data = counting_dataset("d", {2, 1});
  const GptDataset dataset(DatasetPart(data), {.sequence_length = 8, .shuffle = false});
  EXPECT_EQ(dataset.samples_per_pass(), 0u);
  EXPECT_EQ(sample(dataset, 0).first, (Tokens{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(sample(dataset, 1).first, (Tokens{2, 0, 1, 2, 0, 1, 2, 0, 1}));
  const GptDataset shuffled(DatasetPart(data), {.sequence_length = 8});
  for (uint64_t i = 0; i < 50; ++i) {
    for (const int32_t token : sample(shuffled, i).first) EXPECT_TRUE(token >= 0 && token <= 2);
  }
}

TEST_F(GptDatasetTest, BoundsBeyond32Bits) {
  const auto data = counting_dataset("d", {5, 8});
  const GptDataset dataset(DatasetPart(data), {.sequence_length = 4});
  const auto tokens = sample(dataset, uint64_t{1} << 40).first;
  for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 13);
}

TEST_F(GptDatasetTest, RefusesEmptyOnes) {
  const auto data = write_dataset("none", {});
  EXPECT_THROW(GptDataset(DatasetPart(data), {}), InputError);
  EXPECT_THROW(GptDataset(DatasetPart(counting_dataset("d", {3})), {.sequence_length = 0}), InputError);
}

TEST_F(GptDatasetTest, SplitByDocuments) {
  std::vector<int> lengths(1000, 2);
  const auto data = counting_dataset("d", lengths);
  const auto parts = split_dataset(data, SplitWeights::parse("949,50,1"));
  EXPECT_EQ(parts[0].documents(), 949u);
  EXPECT_EQ(parts[1].documents(), 50u);
  EXPECT_EQ(parts[2].documents(), 1u);
  Tokens token(2);
  parts[1].read_document(0, 0, token);
  EXPECT_EQ(token, (Tokens{1898, 1899}));
  const auto all = split_dataset(data, SplitWeights::parse("1"));
  EXPECT_EQ(all[0].tokens(), 2000u);
  EXPECT_EQ(all[1].tokens() + all[2].tokens(), 0u);
  const auto thirds = split_dataset(data, SplitWeights::parse("1,1,1"));
  EXPECT_EQ(thirds[0].documents() + thirds[1].documents() + thirds[2].documents(), 1000u);
}

TEST_F(GptDatasetTest, SplitByTokensWhereDocumentsAreTooFew) {
  const auto data = counting_dataset("d", {30, 0, 70});
  const auto parts = split_dataset(data, SplitWeights::parse("80,15,5"));
  EXPECT_EQ(parts[0].tokens(), 80u);
  EXPECT_EQ(parts[1].tokens(), 15u);
  EXPECT_EQ(parts[2].tokens(), 5u);
  Tokens all;
  for (const auto& part : parts) {
    for (uint64_t d = 0; d < part.documents(); ++d) {
      Tokens tokens(part.document_length(d));
      part.read_document(d, 0, tokens);
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
  }
  ASSERT_EQ(all.size(), 100u);
  for (int32_t i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

TEST_F(GptDatasetTest, SplitTexts) {
  for (const char* bad : {"", "a", "1,,2", "1,2,3,4", "-1,2", "0,0,0", "nan", "inf,1", "1 2"}) {
    EXPECT_THROW(SplitWeights::parse(bad), InputError) << bad;
  }
  EXPECT_DOUBLE_EQ(SplitWeights::parse("949, 50, 1").weights[1], 0.05);
}

}  // namespace
}  // namespace megalith
