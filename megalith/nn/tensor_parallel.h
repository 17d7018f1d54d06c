// TensorParallel: the ranks that share each layer (Shoeybi et al., "Megatron-LM"), and sequence parallelism
// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models").
//
// Between two residual streams a branch first multiplies by matrices cut by columns, then by one cut by rows:
// its input is needed whole, and its output is a sum over ranks. Without sequence parallelism the streams are
// whole on every rank, so the forward pass sums once behind a branch, and the backward pass once before it.
// With it a rank holds its own N / size rows of the streams: rows are gathered before a branch and
// reduce-scattered behind it, which is the same volume, and norms, dropout and residuals are split.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/comm/communicator.h"
#include "megalith/tensor/exec.h"
#include "megalith/tensor/tensor_slice.h"

namespace megalith {

class TensorParallel {
 public:
  /// A group of one, which does nothing.
  TensorParallel() = default;
  /// `group` must outlive all copies.
  TensorParallel(Communicator& group, bool sequence_parallel)
      : group_(&group), rank_(group.rank()), size_(group.size()), sequence_parallel_(sequence_parallel) {}
  /// What a rank of a group would hold; such a model can be counted but not run.
  static TensorParallel described(int rank, int size, bool sequence_parallel);

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool sequence_parallel() const { return sequence_parallel_ && size_ > 1; }

  /// This rank's share of `parts` laid one behind another; every part must be a multiple of the size. `what`
  /// names them in the error.
  TensorSlice slice(int axis, const std::vector<int64_t>& parts, const char* what) const;

  /// Of `rows` rows of a residual stream, how many this rank holds, and the first of them.
  int64_t stream_rows(int64_t rows) const;
  int64_t first_stream_row(int64_t rows) const { return sequence_parallel() ? rank_ * stream_rows(rows) : 0; }
  /// The rows of x [N,C] that belong to this rank's stream.
  TensorView own_rows(TensorView x) const;

  /// x [N,C] with own_rows filled in becomes whole.
  void gather(const ExecContext& exec, TensorView x) const;
  /// x [N,C], a partial sum on each rank, becomes the sum: all rows of it, or own_rows alone with sequence
  /// parallelism (the others then mean nothing).
  void reduce(const ExecContext& exec, TensorView x) const;
  /// x becomes the sum over ranks.
  void all_reduce(const ExecContext& exec, TensorView x) const;
  /// x [R,...]: every rank receives x[r] from rank r.
  void all_gather(const ExecContext& exec, TensorView x) const;

 private:
  Communicator& group() const;

  Communicator* group_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool sequence_parallel_ = false;
};

}  // namespace megalith
