// Reductions over buffers that all ranks of a host can address: each rank reduces its own part of all
// buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megalith/comm/communicator.h"

namespace megalith {

/// target[i] = sources[0][i] + sources[1][i] + ... in that order, for elements i in
/// [begin, end); F32, BF16 or F16, computed in fp32 and rounded once. `target` may be one of the sources.
void reduce_in_order(const std::vector<std::byte*>& sources, int64_t begin, int64_t end, DType dtype,
                     std::byte* target);

/// The two halves of it, for sums that begin elsewhere: sum[i - begin] = (sum[i - begin] +) sources[0][i] +
/// ... in that order; `begins` says that nothing is in `sum` yet.
void add_in_order(const std::vector<std::byte*>& sources, int64_t begin, int64_t end, DType dtype,
                  bool begins, float* sum);
/// target[i] = sum[i], rounded.
void round_sums(const float* sum, int64_t count, DType dtype, std::byte* target);

}  // namespace megalith
