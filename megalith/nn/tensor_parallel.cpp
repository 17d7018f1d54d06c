#include "megalith/nn/tensor_parallel.h"

#include "megalith/base/error.h"

namespace megalith {

TensorParallel TensorParallel::described(int rank, int size, bool sequence_parallel) {
  TensorParallel result;
  result.rank_ = rank;
  result.size_ = size;
  result.sequence_parallel_ = sequence_parallel;
  return result;
}

TensorSlice TensorParallel::slice(int axis, const std::vector<int64_t>& parts, const char* what) const {
  if (size_ == 1) return {};
  TensorSlice slice{axis, {}};
  int64_t offset = 0;
  for (const int64_t part : parts) {
    check(part % size_ == 0, "{} {} cannot be shared equally by {} tensor-parallel ranks", part, what, size_);
    const int64_t share = part / size_;
    slice.ranges.push_back({offset + rank_ * share, offset + (rank_ + 1) * share});
    offset += part;
  }
  return slice;
}

int64_t TensorParallel::stream_rows(int64_t rows) const {
  if (!sequence_parallel()) return rows;
  check(rows % size_ == 0, "sequence parallel: {} rows cannot be shared equally by {} ranks", rows, size_);
  return rows / size_;
}

TensorView TensorParallel::own_rows(TensorView x) const {
  if (!sequence_parallel()) return x;
  const int64_t rows = stream_rows(x.shape()[0]);
  return x.slice(rank_ * rows, (rank_ + 1) * rows);
}

void TensorParallel::gather(const ExecContext& exec, TensorView x) const {
  if (sequence_parallel()) all_gather(exec, x);
}

void TensorParallel::reduce(const ExecContext& exec, TensorView x) const {
  if (!sequence_parallel()) return all_reduce(exec, x);
  const ProfileScope scope(exec, "communication");
  group().reduce_scatter(x);
}

void TensorParallel::all_reduce(const ExecContext& exec, TensorView x) const {
  if (size_ == 1) return;
  const ProfileScope scope(exec, "communication");
  group().all_reduce(x);
}

void TensorParallel::all_gather(const ExecContext& exec, TensorView x) const {
  if (size_ == 1) return;
  const ProfileScope scope(exec, "communication");
  group().all_gather(x);
}

Communicator& TensorParallel::group() const {
  check(group_ != nullptr, "this model was only described as rank {} of {} and cannot run", rank_, size_);
  return *group_;
}

}  // namespace megalith
