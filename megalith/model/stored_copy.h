// Copies between parameters and the tensors of files that hold them (StoredTensor).
#pragma once

#include <functional>
#include <vector>

#include "megalith/model/stored_tensor.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// rows [stored.rows, columns] of a parameter, or [stored.rows], from the whole stored tensor `from`, of any
/// weight type. The result is rounded once to the type of `rows`.
void read_stored(const ExecContext& exec, const StoredTensor& stored, TensorView from, TensorView rows);

/// What a stored tensor holds of a parameter, row by row in the order of the file, as fp32. A vector is one
/// row, and so is a row of a tensor that is stored transposed. Makes few bytes at a time of a parameter of
/// any size and form.
class StoredRows {
 public:
  /// The tensor's rows begin at row `first` of the parameter, which must outlive this.
  StoredRows(const Parameter& parameter, int64_t first, const StoredTensor& stored);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  /// Row `row` of the file; zeros where nothing is used.
  void read(int64_t row, float* out) const;

 private:
  const Parameter& parameter_;
  int64_t first_;
  const StoredTensor& stored_;
  int64_t rows_, columns_;
  std::vector<int64_t> ours_;  // our row of each row of the file; -1 where nothing is used
};

/// Calls write(count, values) for runs of rows of a few megabytes, in order; `values` holds them one after
/// the other.
void for_each_run(const ExecContext& exec, const StoredRows& rows,
                  const std::function<void(int64_t, const float*)>& write);

}  // namespace megalith
