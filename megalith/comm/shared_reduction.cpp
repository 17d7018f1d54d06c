#include "megalith/comm/shared_reduction.h"

#include <algorithm>
#include <array>

namespace megalith {

void sum_in_order(std::span<float* const> sources, int64_t begin, int64_t end, float* target) {
  constexpr int64_t kBlock = 2048;  // 8 KB: the running sum stays in the first-level cache
  std::array<float, kBlock> sum;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    std::copy_n(sources[0] + at, count, sum.data());
    for (size_t s = 1; s < sources.size(); ++s) {
      const float* source = sources[s] + at;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += source[i];
    }
    std::copy_n(sum.data(), count, target + at);
  }
}

}  // namespace megalith
