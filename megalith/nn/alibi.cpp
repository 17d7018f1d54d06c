#include "megalith/nn/alibi.h"

#include <bit>
#include <cmath>

namespace megalith {

std::vector<float> alibi_slopes(int64_t heads) {
  const int64_t n = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  for (int64_t i = 0; i < heads; ++i) {
    const int64_t number = i < n ? 2 * (i + 1) : 2 * (i - n) + 1;  // of 2 n heads, from 1
    slopes.push_back(
        static_cast<float>(std::exp2(-4.0 * static_cast<double>(number) / static_cast<double>(n))));
  }
  return slopes;
}

}  // namespace megalith
