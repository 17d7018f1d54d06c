#include "megalith/tensor/tensor_slice.h"

#include <algorithm>

#include "megalith/base/error.h"

namespace megalith {

int64_t TensorSlice::length() const {
  int64_t total = 0;
  for (const IndexRange& range : ranges) total += range.end - range.begin;
  return total;
}

Shape TensorSlice::local_shape(const Shape& global) const {
  if (whole()) return global;
  check(axis < global.rank() && global.rank() <= 2,
        "slices are of vectors and matrices, not of dimension {} of {}", axis, to_string(global));
  Shape local = global;
  local.set(axis, length());
  return local;
}

void TensorSlice::for_each_run(const Shape& global, int64_t begin, int64_t end,
                               const std::function<void(int64_t, int64_t, int64_t)>& run) const {
  if (whole()) {
    if (begin < end) run(begin, begin, end - begin);
    return;
  }
  const bool columns_cut = axis == 1;
  // A stretch is a range of rows, or a range of columns within one row.
  const int64_t unit = columns_cut ? 1 : global.rank() == 2 ? global[1] : 1;
  const int64_t stride = length() * unit;
  const int64_t repeats = columns_cut ? global[0] : 1, global_stride = columns_cut ? global[1] : 0;
  if (stride == 0) return;
  for (int64_t row = columns_cut ? begin / stride : 0; row < repeats && row * stride < end; ++row) {
    int64_t local = row * stride;
    for (const IndexRange& range : ranges) {
      const int64_t from = std::max(begin, local), elements = (range.end - range.begin) * unit;
      const int64_t to = std::min(end, local + elements);
      if (from < to) run(from, row * global_stride + range.begin * unit + (from - local), to - from);
      local += elements;
    }
  }
}

}  // namespace megalith
