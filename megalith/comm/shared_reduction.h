// Sums over buffers that all ranks of a host can address: each rank sums its own part of all buffers.
#pragma once

#include <cstdint>
#include <span>

namespace megalith {

/// target[i] = sources[0][i] + sources[1][i] + ... in that order, for i in [begin, end). `target` may be one
/// of the sources.
void sum_in_order(std::span<float* const> sources, int64_t begin, int64_t end, float* target);

}  // namespace megalith
