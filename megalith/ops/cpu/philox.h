// Dropout masks: Philox4x32-10 over many blocks at once, equal to megalith/base/random.h word for word.
#pragma once

#include "megalith/ops/cpu/level.h"
#include "megalith/ops/cpu/table.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kMaskChunk = 256;  // elements of a mask that are made at once; a multiple of 4

/// factors[i] = 0 where element `first + i` of this row is dropped, else the scale. n <= kMaskChunk.
MEGALITH_INLINE void mask_factors(const MaskSource& mask, uint64_t row, uint64_t first, int64_t n,
                                  float* factors) {
  constexpr int64_t kBlocks = kMaskChunk / 4 + 1;
  uint32_t words[4][kBlocks];
  const uint64_t position = mask.first_position + row;
  const uint32_t first_block = static_cast<uint32_t>(first / 4);
  const int64_t blocks = static_cast<int64_t>((first + static_cast<uint64_t>(n) + 3) / 4 - first / 4);
#pragma omp simd
  for (int64_t i = 0; i < blocks; ++i) {
    uint32_t c0 = first_block + static_cast<uint32_t>(i);
    uint32_t c1 = static_cast<uint32_t>(position);
    uint32_t c2 = static_cast<uint32_t>(position >> 32);
    uint32_t c3 = mask.stream;
    uint32_t k0 = static_cast<uint32_t>(mask.key), k1 = static_cast<uint32_t>(mask.key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t product0 = uint64_t{0xD2511F53u} * c0;
      const uint64_t product1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(product1);
      c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(product0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[0][i] = c0;
    words[1][i] = c1;
    words[2][i] = c2;
    words[3][i] = c3;
  }
  const int64_t skip = static_cast<int64_t>(first % 4);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t element = skip + i;
    factors[i] = words[element % 4][element / 4] < mask.threshold ? 0.0f : mask.scale;
  }
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
