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

namespace {

// Calls visit(local, global, elements) for what a slice holds of the global elements [first, end).
template <class Visit>
void for_each_held(const Shape& global, const TensorSlice& slice, int64_t first, int64_t end, Visit&& visit) {
  if (slice.whole()) return visit(first, first, end - first);
  const bool columns_cut = slice.axis == 1;
  const int64_t unit = columns_cut ? 1 : global.rank() == 2 ? global[1] : 1;
  const int64_t stride = slice.length() * unit, global_stride = columns_cut ? global[1] : 0;
  for (int64_t row = columns_cut ? first / global_stride : 0; row == 0 || row * global_stride < end; ++row) {
    int64_t local = row * stride;
    for (const IndexRange& range : slice.ranges) {
      const int64_t begins = row * global_stride + range.begin * unit;
      const int64_t from = std::max(first, begins),
                    to = std::min(end, row * global_stride + range.end * unit);
      if (from < to) visit(local + (from - begins), from, to - from);
      local += (range.end - range.begin) * unit;
    }
    if (!columns_cut) break;
  }
}

}  // namespace

void for_each_common_run(const Shape& global, const SlicePart& a, const SlicePart& b,
                         const std::function<void(int64_t, int64_t, int64_t)>& run) {
  a.slice.for_each_run(global, a.begin, a.end, [&](int64_t in_a, int64_t first, int64_t count) {
    for_each_held(global, b.slice, first, first + count, [&](int64_t in_b, int64_t at, int64_t elements) {
      const int64_t from = std::max(in_b, b.begin), to = std::min(in_b + elements, b.end);
      if (from < to) run(in_a + (at - first) + (from - in_b) - a.begin, from - b.begin, to - from);
    });
  });
}

}  // namespace megalith
