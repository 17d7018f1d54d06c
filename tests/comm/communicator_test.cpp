#include "megalith/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "megalith/comm/agreement.h"
#include "megalith/comm/host_layout.h"
#include "megalith/comm/process_grid.h"
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

TEST(ThreadCommunicator, ARankThatFailsReleasesTheOthersInEveryGroupAndInRecv) {
  EXPECT_THROW(run_ranks(4,
                         [](Communicator& ranks) {
                           const auto pair = ranks.split(ranks.rank() / 2, ranks.rank(), "pair");
                           if (ranks.rank() == 1) fail("out of luck");
                           float value = 0;
                           const TensorView view(&value, DType::f32, {1});
                           if (ranks.rank() == 0) pair->all_reduce(view);
                           if (ranks.rank() == 2) pair->recv(view, 1, 0);
                           if (ranks.rank() == 3) ranks.barrier();
                         }),
               Error);
}

// Rank 1 neither finishes an operation nor fails; rank 2 waits for rank 0, which is not to blame.
TEST(Watchdog, NamesTheOperationAndTheRankThatHangs) {
  std::atomic<bool> release{false};
  std::string message;
  try {
    run_ranks(3, [&](Communicator& ranks) {
      ranks.set_hang_seconds(1.2);
      float value = 0;
      const TensorView view(&value, DType::f32, {1});
      if (ranks.rank() == 1) {
        while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      try {
        if (ranks.rank() == 2) ranks.recv(view, 0, 0);
        if (ranks.rank() == 0) ranks.recv(view, 1, 0);
      } catch (...) {
        release = true;
        throw;
      }
    });
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, testing::HasSubstr(
                           "rank 0: recv of the group \"world\": rank 1 has finished no operation for"));
}

TEST(Watchdog, ASlowRankThatFinishesOperationsDoesNotHang) {
  run_ranks(2, [](Communicator& ranks) {
    ranks.set_hang_seconds(1.0);
    if (ranks.rank() == 1) {
      for (int operation = 0; operation < 8; ++operation) {
        std::this_thread::sleep_for(std::chrono::milliseconds(400));
        ranks.progress().change();
      }
    }
    ranks.barrier();
  });
}

TEST(Watchdog, UntimedWorkMayTakeLong) {
  run_ranks(2, [](Communicator& ranks) {
    ranks.set_hang_seconds(0.5);
    agree(ranks, [&] {
      if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    });
  });
}

TEST(ProcessGrid, PlacesAndGroupsOfEveryRank) {
  struct Case {
    int pipeline, data, tensor;
  };
  // The last one is MT-NLG's: 8 tensor x 35 pipeline x 16 data = 4480 ranks.
  for (const auto& [pipeline, data, tensor] : {Case{1, 1, 1}, Case{2, 1, 1}, Case{1, 3, 1}, Case{1, 1, 4},
                                               Case{2, 3, 4}, Case{5, 2, 3}, Case{35, 16, 8}}) {
    const int ranks = pipeline * data * tensor;
    const ProcessGrid grid(ranks, pipeline, tensor);
    EXPECT_EQ(grid.ranks(), ranks);
    EXPECT_EQ(grid.data(), data);
    std::map<std::pair<int, int>, std::vector<int>> groups;  // axis, number
    int rank = 0;
    for (int p = 0; p < pipeline; ++p) {
      for (int d = 0; d < data; ++d) {
        for (int t = 0; t < tensor; ++t, ++rank) {
          EXPECT_EQ(grid.place(rank), (GridPlace{p, d, t}));
          EXPECT_EQ(grid.rank({p, d, t}), rank);
          for (const GridAxis axis : {GridAxis::pipeline, GridAxis::data, GridAxis::tensor})
            groups[{static_cast<int>(axis), grid.group_number(axis, rank)}].push_back(rank);
        }
      }
    }
    EXPECT_EQ(groups.size(), static_cast<size_t>(data * tensor + pipeline * tensor + pipeline * data));
    // The members of a group stand in a row along its axis.
    for (const auto& [key, members] : groups) {
      const auto axis = static_cast<GridAxis>(key.first);
      ASSERT_EQ(static_cast<int>(members.size()), axis == GridAxis::pipeline ? pipeline
                                                  : axis == GridAxis::data   ? data
                                                                             : tensor);
      GridPlace expected = grid.place(members.front());
      int& moving = axis == GridAxis::pipeline ? expected.pipeline
                    : axis == GridAxis::data   ? expected.data
                                               : expected.tensor;
      for (moving = 0; moving < static_cast<int>(members.size()); ++moving)
        ASSERT_EQ(grid.place(members[static_cast<size_t>(moving)]), expected);
    }
  }
}

TEST(HostLayout, NeighboursOnHosts) {
  const auto layout = HostLayout::of({7, 7, 7, 2, 2, 5, 5, 5, 5}, 4);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->first, (std::vector<int>{0, 3, 5, 9}));
  EXPECT_EQ(layout->hosts(), 3);
  EXPECT_EQ(layout->host, 1);
  EXPECT_EQ(layout->local, 1);
  EXPECT_EQ(layout->carriers(), 2);
  EXPECT_EQ(layout->ranks_on(2), 4);
  const int hosts[] = {0, 0, 0, 1, 1, 2, 2, 2, 2};
  for (int rank = 0; rank < 9; ++rank) EXPECT_EQ(layout->host_of(rank), hosts[rank]);
  // Dealt to hosts in turn: no neighbours.
  EXPECT_FALSE(HostLayout::of({0, 1, 0, 1}, 0).has_value());
  EXPECT_TRUE(HostLayout::of({4, 4}, 1).has_value());
}

TEST(ProcessGrid, RanksThatDoNotComeOutEvenAreRefused) {
  EXPECT_THROW(ProcessGrid(6, 4, 1), InputError);
  EXPECT_THROW(ProcessGrid(2, 2, 2), InputError);
  EXPECT_THROW(ProcessGrid(0, 1, 1), InputError);
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
  std::vector<int> wrong_input(3);  // not bool: ranks write their own at the same time
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
