// Sums over rows in an order fixed by the number of rows: blocks of rows have partial sums of their own,
// which are then added in order.
#pragma once

#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

class RowSums {
 public:
  /// Takes its buffer from the workspace; the caller holds the ArenaScope.
  RowSums(const ExecContext& context, int64_t rows, int64_t columns)
      : columns_(columns), rows_per_sum_(std::max<int64_t>(32, (rows + 63) / 64)) {
    count_ = (rows + rows_per_sum_ - 1) / rows_per_sum_;
    sums_ = static_cast<float*>(
        context.workspace.allocate(static_cast<size_t>(count_ * columns) * sizeof(float)));
  }

  int64_t rows_per_sum() const { return rows_per_sum_; }

  /// The zeroed partial sums of the block that starts at this row.
  float* start(int64_t row) const {
    float* sums = sums_ + row / rows_per_sum_ * columns_;
    std::memset(sums, 0, static_cast<size_t>(columns_) * sizeof(float));
    return sums;
  }

  /// to[j] += sum over blocks of column first + j.
  void add_to(const ExecContext& context, int64_t first, float* to, int64_t columns) const {
    parallel_blocks(context, columns, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count_; ++i) {
        cpu::kernels().element.add(sums_ + i * columns_ + first + begin, to + begin, end - begin);
      }
    });
  }

 private:
  int64_t columns_, rows_per_sum_, count_ = 0;
  float* sums_ = nullptr;
};

}  // namespace megalith
