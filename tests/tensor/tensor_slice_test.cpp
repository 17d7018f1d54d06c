#include "megalith/tensor/tensor_slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "megalith/base/error.h"

namespace megalith {
namespace {

// What the definition says: the element of the whole that each local element is.
std::vector<int64_t> expected_elements(const TensorSlice& slice, const Shape& global) {
  const int64_t rows = global[0], columns = global.rank() == 2 ? global[1] : 1;
  const auto held = [&](int64_t at) {
    for (const IndexRange& range : slice.ranges) {
      if (at >= range.begin && at < range.end) return true;
    }
    return false;
  };
  std::vector<int64_t> elements;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      if (slice.whole() || held(slice.axis == 0 ? r : c)) elements.push_back(r * columns + c);
    }
  }
  return elements;
}

TEST(TensorSlice, RunsVisitEveryElementOnceInOrder) {
  for (const Shape& global : {Shape{7}, Shape{7, 5}, Shape{6, 1}, Shape{1, 7}}) {
    for (const TensorSlice& slice :
         {TensorSlice{}, TensorSlice{0, {{2, 5}}}, TensorSlice{0, {{0, 1}, {3, 3}, {4, 6}}},
          TensorSlice{0, {}}, TensorSlice{0, {{6, 6}}}, TensorSlice{1, {{0, 1}}},
          TensorSlice{1, {{0, 2}, {3, 5}}}, TensorSlice{1, {{1, 1}}}}) {
      if (slice.axis >= global.rank()) continue;
      bool fits = true;
      for (const IndexRange& range : slice.ranges) fits = fits && range.end <= global[slice.axis];
      if (!fits) continue;
      const std::vector<int64_t> expected = expected_elements(slice, global);
      const int64_t elements = static_cast<int64_t>(expected.size());
      EXPECT_EQ(slice.local_shape(global).elements(), elements);
      for (int64_t begin = 0; begin <= elements; ++begin) {
        for (int64_t end = begin; end <= elements; ++end) {
          std::vector<int64_t> visited;
          slice.for_each_run(global, begin, end, [&](int64_t local, int64_t first, int64_t count) {
            EXPECT_EQ(local, begin + static_cast<int64_t>(visited.size()));
            EXPECT_GT(count, 0);
            for (int64_t i = 0; i < count; ++i) visited.push_back(first + i);
          });
          EXPECT_EQ(visited, std::vector<int64_t>(expected.begin() + begin, expected.begin() + end))
              << to_string(global) << " axis " << slice.axis << ", " << begin << " .. " << end;
        }
      }
    }
  }
}

TEST(TensorSlice, CommonRunsCopyOnePartIntoAnother) {
  const std::vector<TensorSlice> slices = {
      {}, {0, {{0, 3}}}, {0, {{1, 2}, {4, 6}}}, {1, {{0, 2}}}, {1, {{0, 1}, {2, 2}, {3, 5}}}, {1, {{4, 4}}}};
  for (const Shape& global : {Shape{6, 5}, Shape{6}}) {
    for (const TensorSlice& a : slices) {
      for (const TensorSlice& b : slices) {
        if (a.axis >= global.rank() || b.axis >= global.rank()) continue;
        const std::vector<int64_t> all_a = expected_elements(a, global), all_b = expected_elements(b, global);
        const int64_t size_a = static_cast<int64_t>(all_a.size()),
                      size_b = static_cast<int64_t>(all_b.size());
        for (const auto& [from_a, from_b, less] :
             {std::tuple<int64_t, int64_t, int64_t>{0, 0, 0}, {1, 4, 0}, {3, 0, 2}}) {
          const SlicePart part_a{a, std::min(from_a, size_a),
                                 std::max(std::min(from_a, size_a), size_a - less)};
          const SlicePart part_b{b, std::min(from_b, size_b),
                                 std::max(std::min(from_b, size_b), size_b - less)};
          std::vector<int64_t> copied(static_cast<size_t>(part_a.elements()), -1);
          for_each_common_run(global, part_a, part_b, [&](int64_t in_a, int64_t in_b, int64_t elements) {
            for (int64_t i = 0; i < elements; ++i) {
              EXPECT_EQ(copied[static_cast<size_t>(in_a + i)], -1) << "twice";
              copied[static_cast<size_t>(in_a + i)] = all_b[static_cast<size_t>(part_b.begin + in_b + i)];
            }
          });
          for (int64_t i = 0; i < part_a.elements(); ++i) {
            const int64_t element = all_a[static_cast<size_t>(part_a.begin + i)];
            const bool common = std::find(all_b.begin() + part_b.begin, all_b.begin() + part_b.end,
                                          element) != all_b.begin() + part_b.end;
            EXPECT_EQ(copied[static_cast<size_t>(i)], common ? element : -1);
          }
        }
      }
    }
  }
}

TEST(TensorSlice, OnlyVectorsAndMatricesAreCut) {
  EXPECT_THROW((TensorSlice{0, {{0, 1}}}.local_shape({2, 2, 2})), Error);
  EXPECT_THROW((TensorSlice{1, {{0, 1}}}.local_shape({2})), Error);
}

}  // namespace
}  // namespace megalith
