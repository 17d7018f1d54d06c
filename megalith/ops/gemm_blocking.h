// How a matrix product is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "megalith/ops/cpu/table.h"

namespace megalith {

inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// How the rectangle of C is cut into tasks, and the summed dimension into passes. A packed block of B
/// (columns x units, at most 1.125 MiB, or 1.5 where A is packed for every column of tasks) stays near the
/// core while rows of A stream past it.
struct Blocking {
  int64_t units;        // along the summed dimension, in a pass
  int64_t columns = 0;  // of a task
  int64_t rows = 0;     // of a task
  int64_t column_tasks, row_tasks;

  /// Passes begin at multiples of `unit_multiple`.
  Blocking(const cpu::GemmKernels& kernels, int64_t m, int64_t n, int64_t total_units, int64_t unit_multiple,
           int threads, bool packs_a) {
    // With few rows B is read once and hardly reused: single panels, in long runs through memory.
    constexpr int64_t kPanel = cpu::GemmKernels::kPanel;
    constexpr int64_t kFewRows = 32, kMostRows = 2048, kMostWords = 768 * 512;
    const bool few_rows = m <= kFewRows;
    const int64_t most_units = few_rows ? 1024 : kernels.most_units;
    const int64_t passes = total_units <= kernels.most_units_alone ? 1 : divide_up(total_units, most_units);
    units = std::max<int64_t>(1, round_up(divide_up(total_units, passes), unit_multiple));

    const int64_t most_columns = few_rows  ? kPanel
                                 : packs_a ? std::min<int64_t>(768, kMostWords / units / kPanel * kPanel)
                                           : 384;
    const int64_t fewest_columns = divide_up(n, most_columns), fewest_rows = divide_up(m, kMostRows);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t down = fewest_rows; down < fewest_rows + threads; ++down) {
      for (int64_t across = fewest_columns; across < fewest_columns + (few_rows ? 1 : threads); ++across) {
        const int64_t width = round_up(divide_up(n, across), kPanel);
        const int64_t height = round_up(divide_up(m, down), kernels.row_tile);
        const int64_t tasks = divide_up(n, width) * divide_up(m, height);
        const int64_t time = divide_up(tasks, threads) * task_time(height, width, packs_a);
        if (time >= least) continue;
        least = time;
        columns = width;
        rows = height;
      }
    }
    column_tasks = divide_up(n, columns);
    row_tasks = divide_up(m, rows);
  }

  /// In results, per unit: packing a column of B or a row of A takes about as long as computing 25 or 30.
  static int64_t task_time(int64_t rows, int64_t columns, bool packs_a) {
    return rows * columns + 25 * columns + (packs_a ? 30 * rows : 0);
  }
};

}  // namespace megalith
