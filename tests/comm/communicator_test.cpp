#include "megalith/comm/communicator.h"

#include <gtest/gtest.h>

#include "megalith/comm/agreement.h"
#include "megalith/comm/thread_communicator.h"
#include "tests/comm/collectives.h"

namespace megalith {
namespace {

TEST(ThreadCommunicator, CollectivesSumInTheOrderOfRanks) {
  for (const int ranks : {2, 3, 4, 7}) run_ranks(ranks, check_collectives);
}

TEST(ThreadCommunicator, UnequalPartsAreRefused) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& ranks) {
                           std::vector<float> data(5);
                           ranks.reduce_scatter(TensorView(data.data(), DType::f32, {5}));
                         }),
               Error);
}

TEST(ThreadCommunicator, ARankThatFailsReleasesTheOthersAndIsNamed) {
  try {
    run_ranks(4, [](Communicator& ranks) {
      ranks.gather_texts("");
      if (ranks.rank() == 2) fail("out of luck");
      ranks.gather_texts("");
      ranks.gather_texts("");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "rank 2: out of luck");
  }
}

TEST(SelfCommunicator, DoesNothing) {
  const auto self = make_self_communicator();
  std::vector<float> data{1, 2, 3};
  self->all_reduce(TensorView(data.data(), DType::f32, {3}));
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(self->gather_texts("x"), (std::vector<std::string>{"x"}));
}

TEST(Agreement, AnErrorOfOneRankIsThrownOnAllAndNamesIt) {
  std::vector<std::string> messages(3);
  std::vector<bool> wrong_input(3);
  run_ranks(3, [&](Communicator& ranks) {
    const size_t self = static_cast<size_t>(ranks.rank());
    try {
      agree(ranks, [&] {
        if (ranks.rank() == 1) fail_input("no such file");
      });
    } catch (const AgreedError& error) {
      messages[self] = error.what();
      wrong_input[self] = error.wrong_input();
    }
    // The group is still usable.
    ranks.gather_texts("");
  });
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(messages[r], "rank 1 (of 1 that failed): no such file");
    EXPECT_TRUE(wrong_input[r]);
  }
}

TEST(Agreement, TheSameErrorEverywhereIsSaidWithoutRanks) {
  run_ranks(2, [&](Communicator& ranks) {
    try {
      agree(ranks, [] { fail("the disk is full"); });
      ADD_FAILURE();
    } catch (const AgreedError& error) {
      EXPECT_EQ(std::string(error.what()), "the disk is full");
      EXPECT_FALSE(error.wrong_input());
    }
  });
}

TEST(PartRange, CutsEverythingIntoNeighbouringParts) {
  for (const int64_t n : {0, 1, 5, 64, 1003}) {
    for (const int ranks : {1, 2, 3, 7, 64}) {
      int64_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        const PartRange part = part_range(n, r, ranks);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.end - part.begin, n / ranks + 1);
        at = part.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

}  // namespace
}  // namespace megalith
