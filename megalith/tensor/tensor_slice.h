// The part of a tensor that one of several owners holds: the whole, or ranges of one dimension.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "megalith/tensor/shape.h"

namespace megalith {

/// [begin, end).
struct IndexRange {
  int64_t begin = 0, end = 0;
  bool operator==(const IndexRange&) const = default;
};

/// A slice of a vector or matrix. Its elements in row-major order, range after range, are the "local" tensor;
/// those of the whole are the "global" one.
struct TensorSlice {
  /// The dimension that is cut; -1 for the whole tensor.
  int axis = -1;
  /// What the slice holds of that dimension, by rising position: one range for each part of a fused
  /// projection. Ranges may be empty.
  std::vector<IndexRange> ranges;

  bool whole() const { return axis < 0; }
  bool operator==(const TensorSlice&) const = default;

  /// Elements of the cut dimension in this slice.
  int64_t length() const;
  /// The shape of the local tensor.
  Shape local_shape(const Shape& global) const;

  /// Calls run(local, global, elements) for stretches that are contiguous in both tensors and together hold
  /// local elements [begin, end), by rising position.
  void for_each_run(const Shape& global, int64_t begin, int64_t end,
                    const std::function<void(int64_t local, int64_t global, int64_t elements)>& run) const;
};

/// Local elements [begin, end) of a slice.
struct SlicePart {
  TensorSlice slice;
  int64_t begin = 0, end = 0;

  int64_t elements() const { return end - begin; }
};

/// Calls run(in a, in b, elements) for the elements that two parts of one tensor have in common, in stretches
/// that are contiguous in both. Positions count from the beginning of each part.
void for_each_common_run(const Shape& global, const SlicePart& a, const SlicePart& b,
                         const std::function<void(int64_t in_a, int64_t in_b, int64_t elements)>& run);

}  // namespace megalith
