// Slopes of attention with linear biases (Press et al., "Train short, test long").
#pragma once

#include <cstdint>
#include <vector>

namespace megalith {

/// Of each of `heads` heads: 2^(-8 i / n) for i = 1 .. n, where n is the largest power of two that is not
/// above `heads`; the heads that are left take every second slope of 2 n heads, from the first.
std::vector<float> alibi_slopes(int64_t heads);

}  // namespace megalith
