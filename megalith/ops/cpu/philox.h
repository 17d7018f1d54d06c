// Dropout masks: Philox4x32-10 over a register of blocks at once, equal to megalith/base/random.h word for
// word.
#pragma once

#include <immintrin.h>

#include "megalith/ops/cpu/level.h"
#include "megalith/ops/cpu/shuffle.h"
#include "megalith/ops/cpu/table.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kMaskChunk = 256;  // elements of a mask that are made at once
/// Floats that mask_factors() writes at most: whole registers of blocks, one of which may be needed for an
/// unaligned beginning.
inline constexpr int64_t kMaskBuffer = kMaskChunk + 4 * kLanes;

/// Products of every second word, from the first on, with a constant.
MEGALITH_INLINE WordVector multiply_even(WordVector x, uint32_t factor) {
#ifdef __AVX512F__
  return bit_cast<WordVector>(
      _mm512_mul_epu32(bit_cast<__m512i>(x), _mm512_set1_epi32(static_cast<int>(factor))));
#else
  return bit_cast<WordVector>(
      _mm256_mul_epu32(bit_cast<__m256i>(x), _mm256_set1_epi32(static_cast<int>(factor))));
#endif
}

struct WideProduct {
  WordVector low, high;
};

MEGALITH_INLINE WideProduct multiply_wide(WordVector x, uint32_t factor) {
  typedef uint64_t Pair __attribute__((vector_size(kLanes * 4)));
  const Pair even = bit_cast<Pair>(multiply_even(x, factor));
  const Pair odd = bit_cast<Pair>(multiply_even(bit_cast<WordVector>(bit_cast<Pair>(x) >> 32), factor));
  const Pair low_half = Pair{} + 0xffffffffu;
  return {bit_cast<WordVector>((even & low_half) | (odd << 32)),
          bit_cast<WordVector>((even >> 32) | (odd & ~low_half))};
}

/// Words 4*block .. 4*block+3 of kLanes blocks from `block` on: four registers in the order of the elements.
MEGALITH_INLINE void mask_words(const MaskSource& mask, uint64_t position, uint32_t block,
                                WordVector (&words)[4]) {
  WordVector c0 = lane_numbers() + block;
  WordVector c1 = WordVector{} + static_cast<uint32_t>(position);
  WordVector c2 = WordVector{} + static_cast<uint32_t>(position >> 32);
  WordVector c3 = WordVector{} + mask.stream;
  uint32_t k0 = static_cast<uint32_t>(mask.key), k1 = static_cast<uint32_t>(mask.key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const WideProduct product0 = multiply_wide(c0, 0xD2511F53u), product1 = multiply_wide(c2, 0xCD9E8D57u);
    c0 = product1.high ^ c1 ^ k0;
    c1 = product1.low;
    c2 = product0.high ^ c3 ^ k1;
    c3 = product0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const WordVector even_low = interleave_low(c0, c2), even_high = interleave_high(c0, c2);
  const WordVector odd_low = interleave_low(c1, c3), odd_high = interleave_high(c1, c3);
  words[0] = interleave_low(even_low, odd_low);
  words[1] = interleave_high(even_low, odd_low);
  words[2] = interleave_low(even_high, odd_high);
  words[3] = interleave_high(even_high, odd_high);
}

/// Returns n factors, for elements first .. first + n - 1 of this row: 0 where the element is dropped, else
/// the scale. n <= kMaskChunk; the buffer holds kMaskBuffer floats.
MEGALITH_INLINE const float* mask_factors(const MaskSource& mask, uint64_t row, uint64_t first, int64_t n,
                                          float* buffer) {
  first += mask.first_element;
  const int64_t skip = static_cast<int64_t>(first % 4);
  const Vector scale = Vector{} + mask.scale;
  for (int64_t made = 0; made < skip + n; made += 4 * kLanes) {
    WordVector words[4];
    mask_words(mask, mask.first_position + row,
               static_cast<uint32_t>((first - static_cast<uint64_t>(skip) + static_cast<uint64_t>(made)) / 4),
               words);
#pragma GCC unroll 4
    for (int64_t v = 0; v < 4; ++v) {
      store_vector(buffer + made + v * kLanes, words[v] < mask.threshold ? Vector{} : scale);
    }
  }
  return buffer + skip;
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
