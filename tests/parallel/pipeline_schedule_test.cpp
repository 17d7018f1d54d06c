// Schedules are checked as lists, without running anything.
#include "megalith/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "megalith/base/error.h"

namespace megalith {
namespace {

using Kind = PipelineInstruction::Kind;

// Runs the lists of all stages with receives that block; an instruction of any chunk takes forward_time or
// backward_time. Returns when the last stage is done, or -1 when all wait for ever.
int64_t simulate(const std::vector<PipelineInstructions>& stages, const PipelineShape& shape,
                 int64_t micro_batches, int64_t forward_time, int64_t backward_time) {
  const size_t pieces = static_cast<size_t>(shape.pieces()), m = static_cast<size_t>(micro_batches);
  std::vector<int64_t> forward_done(pieces * m, -1), backward_done(pieces * m, -1);
  std::vector<size_t> next(stages.size(), 0);
  std::vector<int64_t> clock(stages.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      while (next[stage] < stages[stage].size()) {
        const PipelineInstruction& each = stages[stage][next[stage]];
        const size_t piece = static_cast<size_t>(shape.piece(static_cast<int>(stage), each.chunk));
        const size_t mb = static_cast<size_t>(each.micro_batch);
        int64_t ready = 0;
        if (each.kind == Kind::forward) {
          if (piece > 0) ready = forward_done[(piece - 1) * m + mb];
        } else {
          ready = piece + 1 < pieces ? backward_done[(piece + 1) * m + mb] : forward_done[piece * m + mb];
        }
        if (ready < 0) break;
        clock[stage] =
            std::max(clock[stage], ready) + (each.kind == Kind::forward ? forward_time : backward_time);
        (each.kind == Kind::forward ? forward_done : backward_done)[piece * m + mb] = clock[stage];
        ++next[stage];
        moved = true;
      }
    }
  }
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (next[stage] != stages[stage].size()) return -1;
  }
  return *std::max_element(clock.begin(), clock.end());
}

// Every (micro-batch, chunk) goes forward once, then backward once, both in ascending order of micro-batches.
void expect_whole(const PipelineInstructions& list, int chunks, int64_t micro_batches) {
  ASSERT_EQ(list.size(), static_cast<size_t>(2 * chunks * micro_batches));
  std::vector<int64_t> forward(static_cast<size_t>(chunks), 0), backward(static_cast<size_t>(chunks), 0);
  for (const PipelineInstruction& each : list) {
    const size_t chunk = static_cast<size_t>(each.chunk);
    int64_t& expected = each.kind == Kind::forward ? forward[chunk] : backward[chunk];
    ASSERT_EQ(each.micro_batch, expected);
    ++expected;
    ASSERT_LE(backward[chunk], forward[chunk]);
  }
}

std::vector<PipelineInstructions> all_stages(PipelineSchedule schedule, const PipelineShape& shape,
                                             int64_t m) {
  std::vector<PipelineInstructions> stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(pipeline_instructions(schedule, shape, m, stage));
  return stages;
}

// All small numbers of micro-batches, and around multiples of the depth up to 256.
std::vector<int64_t> micro_batch_counts(int stages) {
  std::vector<int64_t> counts{1, 2, 3, 5, 8, 13, 31, 64, 100, 255, 256};
  for (const int64_t m : {stages - 1, stages, stages + 1, 2 * stages + 1, 3 * stages}) {
    if (m >= 1 && m <= 256) counts.push_back(m);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

constexpr int64_t kForward = 12, kBackward = 24;  // time of a stage's forward and backward pass

TEST(PipelineSchedule, OneForwardOneBackwardHasTheBubbleAndTheLiveMicroBatchesOfThePaper) {
  for (int p = 1; p <= 64; ++p) {
    const PipelineShape shape{p, 1};
    for (const int64_t m : micro_batch_counts(p)) {
      const auto stages = all_stages(PipelineSchedule::one_forward_one_backward, shape, m);
      for (int i = 0; i < p; ++i) {
        expect_whole(stages[static_cast<size_t>(i)], 1, m);
        ASSERT_EQ(most_alive(stages[static_cast<size_t>(i)], 0), std::min<int64_t>(p - i, m))
            << p << " " << m;
      }
      // (m + p - 1) slots: a bubble of (p - 1) / m.
      ASSERT_EQ(simulate(stages, shape, m, kForward, kBackward), (m + p - 1) * (kForward + kBackward))
          << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(PipelineSchedule, GPipeHasTheSameBubbleAndKeepsEveryMicroBatchAlive) {
  for (int p = 1; p <= 64; p += 3) {
    const PipelineShape shape{p, 1};
    for (const int64_t m : micro_batch_counts(p)) {
      const auto stages = all_stages(PipelineSchedule::gpipe, shape, m);
      for (const PipelineInstructions& list : stages) {
        expect_whole(list, 1, m);
        ASSERT_EQ(most_alive(list, 0), m);
      }
      ASSERT_EQ(simulate(stages, shape, m, kForward, kBackward), (m + p - 1) * (kForward + kBackward));
    }
  }
}

TEST(PipelineSchedule, InterleavedDividesTheBubbleByTheChunksAndNeverWaitsForEver) {
  for (int p = 2; p <= 64; p = p < 9 ? p + 1 : p * 2 - 5) {
    for (const int v : {2, 3, 4}) {
      const PipelineShape shape{p, v};
      for (const int64_t m : micro_batch_counts(p)) {
        const auto stages = all_stages(PipelineSchedule::one_forward_one_backward, shape, m);
        for (int i = 0; i < p; ++i) {
          expect_whole(stages[static_cast<size_t>(i)], v, m);
          int64_t alive = 0;
          for (int chunk = 0; chunk < v; ++chunk) alive += most_alive(stages[static_cast<size_t>(i)], chunk);
          // In units of chunks: the warm-up and the one in work (a chunk's own most may come at another
          // time).
          ASSERT_LE(alive, std::min<int64_t>(v * m, 2 * (p - i - 1) + (v - 1) * p + 1 + v * p));
        }
        const int64_t time = simulate(stages, shape, m, kForward / v, kBackward / v);
        ASSERT_GE(time, 0) << "deadlock: " << p << " stages, " << v << " chunks, " << m << " micro-batches";
        if (m % p == 0) {
          ASSERT_EQ(time, (m * v + p - 1) * (kForward + kBackward) / v) << p << " " << v << " " << m;
        }
      }
    }
  }
}

TEST(PipelineSchedule, EvaluationRunsEveryForwardPassOnceAndNeverWaitsForEver) {
  for (const int p : {1, 2, 3, 8}) {
    for (const int v : {1, 2, 3}) {
      const PipelineShape shape{p, v};
      for (const int64_t m : {0, 1, 2, 7, 16}) {
        const std::vector<PipelineInstructions> stages(static_cast<size_t>(p),
                                                       forward_instructions(shape, m));
        EXPECT_EQ(stages[0].size(), static_cast<size_t>(m * v));
        EXPECT_GE(simulate(stages, shape, m, 1, 1), 0);
      }
    }
  }
}

TEST(PipelineSchedule, NoMicroBatchesIsAnEmptyList) {
  EXPECT_TRUE(pipeline_instructions(PipelineSchedule::one_forward_one_backward, {4, 2}, 0, 1).empty());
}

TEST(SplitLayers, EvenlyDropsNothing) {
  for (int64_t layers = 1; layers <= 105; ++layers) {
    for (int pieces = 1; pieces <= std::min<int64_t>(layers, 35); ++pieces) {
      const auto split = split_layers("even", layers, pieces, 0, 9);
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), layers);
      const auto [least, most] = std::minmax_element(split.begin(), split.end());
      EXPECT_LE(*most - *least, 1);
    }
  }
}

TEST(SplitLayers, ByCostTheHeadTakesTheRoomOfLayers) {
  EXPECT_EQ(split_layers("cost", 12, 2, 0.0, 4.0), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(split_layers("cost", 12, 3, 1.0, 2.0), (std::vector<int64_t>{4, 5, 3}));
  // A head that costs more than its share still leaves every piece a layer.
  EXPECT_EQ(split_layers("cost", 4, 2, 0.0, 50.0), (std::vector<int64_t>{3, 1}));
}

TEST(SplitLayers, AListIsTakenOrRefusedWithTheNumbers) {
  EXPECT_EQ(split_layers("5,3,4", 12, 3, 0, 0), (std::vector<int64_t>{5, 3, 4}));
  for (const char* wrong : {"5,3", "5,3,5", "5,7,0", "5,,7", "5,3,4,", "many", ""})
    EXPECT_THROW(split_layers(wrong, 12, 3, 0, 0), InputError) << wrong;
  EXPECT_THROW(split_layers("even", 3, 4, 0, 0), InputError);
}

}  // namespace
}  // namespace megalith
