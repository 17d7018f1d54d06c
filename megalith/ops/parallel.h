// Work sharing inside operations. Tasks are cut by shape and each writes its own part of the result, so that
// the number of threads changes who computes a task and nothing else.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "megalith/tensor/exec.h"

namespace megalith {

/// Calls task(i, thread) for i in 0 .. tasks-1, handed out one at a time: for tasks of unequal cost. A task
/// must not throw.
template <class Task>
void parallel_tasks(const ExecContext& context, int64_t tasks, Task&& task) {
  if (context.threads <= 1 || tasks <= 1) {
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
#pragma omp parallel num_threads(context.threads)
  {
    const int thread = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) task(i, thread);
  }
}

/// Calls task(begin, end) for ranges of `block` that cover 0 .. n, neighbouring ranges to the same thread.
template <class Task>
void parallel_blocks(const ExecContext& context, int64_t n, int64_t block, Task&& task) {
  const int64_t blocks = (n + block - 1) / block;
  if (context.threads <= 1 || blocks <= 1) {
    for (int64_t i = 0; i < blocks; ++i) task(i * block, std::min(n, (i + 1) * block));
    return;
  }
#pragma omp parallel for num_threads(context.threads) schedule(static)
  for (int64_t i = 0; i < blocks; ++i) task(i * block, std::min(n, (i + 1) * block));
}

/// Rows of a block that holds about `elements` elements.
inline int64_t rows_per_block(int64_t columns, int64_t elements = 16384) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, columns));
}

/// Start of a range inside a buffer of `element_size`-byte elements.
inline void* offset(void* data, int64_t index, size_t element_size) {
  return static_cast<char*>(data) + static_cast<size_t>(index) * element_size;
}
inline const void* offset(const void* data, int64_t index, size_t element_size) {
  return static_cast<const char*>(data) + static_cast<size_t>(index) * element_size;
}

/// The address of row `row` of a matrix.
inline void* row_of(const TensorView& x, int64_t row) {
  return offset(x.raw(), row * x.columns(), size_of(x.dtype()));
}

}  // namespace megalith
