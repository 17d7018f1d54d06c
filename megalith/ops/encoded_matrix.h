// Weights in the form in which a file holds them, quantised or of another type: rows are decoded to fp32 as
// products and look-ups come to them, so that a mapped file serves as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megalith/tensor/exec.h"

namespace megalith {

/// How rows are decoded: blocks of `block_elements` elements in `block_bytes` bytes, one after the other.
struct RowCode {
  /// Decodes n elements, whole blocks.
  void (*decode)(const void* blocks, int64_t n, float* out) = nullptr;
  int64_t block_elements = 1, block_bytes = 4;
};

/// A matrix [rows, columns]. Rows may lie anywhere, in the order that the model wants, and groups of them may
/// have different codes. The memory belongs to somebody else.
struct EncodedMatrix {
  struct Group {
    int64_t end;  // row behind the last one of the group
    RowCode code;
  };

  int64_t columns = 0;
  std::vector<const std::byte*> rows;
  std::vector<Group> groups;

  /// The largest block of the codes; decode() wants `first` to be a multiple of it.
  int64_t block_elements() const;
  /// Elements [first, first + count) of row `row`.
  void decode(int64_t row, int64_t first, int64_t count, float* out) const;
};

/// y[N,F] = x[N,C] w[F,C]^T + bias[F], all F32 (bias may be empty): linear_forward() with the decoded matrix,
/// bit for bit.
void linear_forward(const ExecContext& context, TensorView x, const EncodedMatrix& w, TensorView bias,
                    TensorView y);

/// y[n,:] = row ids[n] of `table`; ids [N] I32, y [N,C] F32. Throws Error for an id that is no row.
void look_up(const ExecContext& context, TensorView ids, const EncodedMatrix& table, TensorView y);

}  // namespace megalith
