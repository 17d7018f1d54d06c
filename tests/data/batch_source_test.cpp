#include "megalith/data/batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "tests/data/temporary_folder.h"

namespace megalith {
namespace {

using BatchSourceTest = testing::TemporaryFolderTest;
using ::testing::ElementsAre;

TEST_F(BatchSourceTest, TargetsFollowTokens) {
  counting_dataset("d", {3, 6});
  const std::string path = (folder / "d").string();
  const auto sources = open_batch_sources({{path}}, {}, {}, "", {.sequence_length = 4, .shuffle = false});
  EXPECT_EQ(sources.validation, nullptr);
  EXPECT_EQ(sources.test, nullptr);
  Batch batch;
  sources.train->fill(0, 2, batch);
  EXPECT_THAT(batch.tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(batch.targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(batch.document_start, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.loss_mask, ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(batch.loss_tokens, 8);
  EXPECT_EQ(sources.train->samples_per_pass(), 2u);
}

TEST_F(BatchSourceTest, ResetAtDocuments) {
  counting_dataset("d", {3, 6});
  const std::string path = (folder / "d").string();
  const auto sources = open_batch_sources(
      {{path}}, {}, {}, "", {.sequence_length = 4, .shuffle = false, .reset_at_documents = true});
  Batch batch;
  sources.train->fill(0, 2, batch);
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 0, 1, 2, 3));
  EXPECT_THAT(batch.document_start, ElementsAre(0, 0, 0, 3, 0, 0, 0, 0));
  // Token 2 ends its document: what follows cannot be told from it.
  EXPECT_THAT(batch.loss_mask, ElementsAre(1, 1, 0, 1, 1, 1, 1, 1));
  EXPECT_EQ(batch.loss_tokens, 7);
}

TEST_F(BatchSourceTest, GroupingIntoBatchesDoesNotShow) {
  counting_dataset("a", std::vector<int>(20, 10));
  counting_dataset("b", std::vector<int>(5, 9), 1000);
  const std::vector<DatasetEntry> entries = {{(folder / "a").string(), 0.7}, {(folder / "b").string(), 0.3}};
  const auto sources = open_batch_sources(entries, {}, {}, "8,1,1", {.sequence_length = 6, .seed = 9});
  ASSERT_NE(sources.validation, nullptr);
  ASSERT_NE(sources.test, nullptr);
  Batch whole, part;
  sources.train->fill(0, 60, whole);
  const auto others = open_batch_sources(entries, {}, {}, "8,1,1", {.sequence_length = 6, .seed = 9});
  for (const uint64_t row : {59u, 3u, 30u, 0u}) {
    others.train->fill(row, 1, part);
    for (size_t t = 0; t < 6; ++t) ASSERT_EQ(part.tokens[t], whole.tokens[row * 6 + t]) << "row " << row;
  }
  const std::vector<uint64_t> picked = {7, 2};
  others.train->fill(picked, part);
  for (size_t t = 0; t < 6; ++t) {
    EXPECT_EQ(part.tokens[t], whole.tokens[7 * 6 + t]);
    EXPECT_EQ(part.tokens[6 + t], whole.tokens[2 * 6 + t]);
  }
  int from_b = 0;
  for (size_t row = 0; row < 60; ++row) from_b += whole.tokens[row * 6] >= 1000 ? 1 : 0;
  EXPECT_EQ(from_b, 18);
}

TEST_F(BatchSourceTest, SmallSetsWrapByEpoch) {
  counting_dataset("a", std::vector<int>(10, 5));
  counting_dataset("b", std::vector<int>(10, 5), 1000);
  const auto sources =
      open_batch_sources({{(folder / "a").string(), 0.001}, {(folder / "b").string(), 0.999}}, {}, {}, "",
                         {.sequence_length = 5});
  Batch batch;
  sources.train->fill(0, 2000, batch);
  int from_a = 0;
  for (size_t row = 0; row < 2000; ++row) from_a += batch.tokens[row * 5] < 1000 ? 1 : 0;
  EXPECT_EQ(from_a, 2);
}

TEST_F(BatchSourceTest, OwnValidationSetsTakeThePlaceOfTheSplit) {
  counting_dataset("a", std::vector<int>(10, 5));
  counting_dataset("v", {30}, 500);
  const auto sources = open_batch_sources({{(folder / "a").string()}}, {{(folder / "v").string()}}, {},
                                          "90,10", {.sequence_length = 4});
  EXPECT_EQ(sources.train->tokens_per_epoch(), 50u);
  EXPECT_EQ(sources.validation->tokens_per_epoch(), 30u);
  Batch batch;
  sources.validation->fill(0, 1, batch);
  EXPECT_THAT(batch.tokens, ElementsAre(500, 501, 502, 503)) << "validation comes in file order";
}

TEST_F(BatchSourceTest, BuffersAreReused) {
  counting_dataset("a", std::vector<int>(10, 50));
  const auto sources = open_batch_sources({{(folder / "a").string()}}, {}, {}, "", {.sequence_length = 16});
  Batch batch;
  sources.train->fill(0, 4, batch);
  const int32_t* tokens = batch.tokens.data();
  sources.train->fill(4, 4, batch);
  EXPECT_EQ(batch.tokens.data(), tokens);
}

TEST_F(BatchSourceTest, IdsOutsideTheVocabularyAreNamed) {
  counting_dataset("a", {50});
  const auto sources =
      open_batch_sources({{(folder / "a").string()}}, {}, {}, "", {.sequence_length = 16, .shuffle = false});
  sources.train->require_vocabulary(40);
  Batch batch;
  sources.train->fill(0, 2, batch);
  EXPECT_THROW(sources.train->fill(2, 1, batch), InputError);
}

TEST_F(BatchSourceTest, RefusesBadRecipes) {
  counting_dataset("a", {50});
  const std::string a = (folder / "a").string();
  const BatchSourceOptions options{.sequence_length = 4};
  EXPECT_THROW(open_batch_sources({}, {}, {}, "", options), InputError);
  EXPECT_THROW(open_batch_sources({{a, -1.0}}, {}, {}, "", options), InputError);
  EXPECT_THROW(open_batch_sources({{a, 0.0}}, {}, {}, "", options), InputError);
  EXPECT_THROW(open_batch_sources({{a}}, {}, {}, "0,1", options), InputError);
  EXPECT_THROW(open_batch_sources({{(folder / "no").string()}}, {}, {}, "", options), InputError);
}

}  // namespace
}  // namespace megalith
