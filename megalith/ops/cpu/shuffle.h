// Fixed rearrangements of 32-bit words in registers.
#pragma once

#include <immintrin.h>

#include "megalith/ops/cpu/level.h"

namespace megalith::cpu::MEGALITH_LEVEL {

typedef int32_t LaneIndex __attribute__((vector_size(kLanes * 4)));

#ifdef __AVX512F__
#define MEGALITH_LANES(T, F)                                                                             \
  T {                                                                                                    \
    F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), F(13), F(14), F(15) \
  }
#else
#define MEGALITH_LANES(T, F)                       \
  T {                                              \
    F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7) \
  }
#endif

MEGALITH_INLINE WordVector lane_numbers() {
#define MEGALITH_LANE(j) (j)
  return MEGALITH_LANES(WordVector, MEGALITH_LANE);
#undef MEGALITH_LANE
}

/// The words of a, then b, from `first` on.
MEGALITH_INLINE WordVector lanes_from(WordVector a, WordVector b, int first) {
#define MEGALITH_LANE(j) ((j) + first)
  return __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
}

/// a[0], b[0], a[1], b[1], ... up to half of each.
MEGALITH_INLINE WordVector interleave_low(WordVector a, WordVector b) {
#define MEGALITH_LANE(j) ((j) / 2 + ((j) % 2) * static_cast<int32_t>(kLanes))
  return __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
}

/// The same from the middle on.
MEGALITH_INLINE WordVector interleave_high(WordVector a, WordVector b) {
#define MEGALITH_LANE(j) \
  (static_cast<int32_t>(kLanes) / 2 + (j) / 2 + ((j) % 2) * static_cast<int32_t>(kLanes))
  return __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
}

/// Every second word of two registers, from the first, and from the second on.
MEGALITH_INLINE WordVector even_lanes(WordVector a, WordVector b) {
#define MEGALITH_LANE(j) (2 * (j))
  return __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
}
MEGALITH_INLINE WordVector odd_lanes(WordVector a, WordVector b) {
#define MEGALITH_LANE(j) (2 * (j) + 1)
  return __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
}

/// The other half of each group of 2 S lanes.
template <int S>
MEGALITH_INLINE Vector swap_lanes(Vector x) {
#define MEGALITH_LANE(j) ((j) ^ S)
  return __builtin_shuffle(x, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
}

/// The sum of all lanes, and the largest, as a tree of pairs.
MEGALITH_INLINE float sum_of_lanes(Vector x) {
#ifdef __AVX512F__
  x = x + swap_lanes<8>(x);
#endif
  x = x + swap_lanes<4>(x);
  x = x + swap_lanes<2>(x);
  x = x + swap_lanes<1>(x);
  return x[0];
}
MEGALITH_INLINE Vector larger_lanes(Vector a, Vector b) {
#ifdef __AVX512F__
  return bit_cast<Vector>(_mm512_max_ps(bit_cast<__m512>(b), bit_cast<__m512>(a)));
#else
  return a < b ? b : a;
#endif
}
MEGALITH_INLINE float largest_of_lanes(Vector x) {
#ifdef __AVX512F__
  x = larger_lanes(x, swap_lanes<8>(x));
#endif
  x = larger_lanes(x, swap_lanes<4>(x));
  x = larger_lanes(x, swap_lanes<2>(x));
  x = larger_lanes(x, swap_lanes<1>(x));
  return x[0];
}

/// Exchanges, between two registers, the words whose positions differ in bit S.
template <int S>
MEGALITH_INLINE void exchange(WordVector& a, WordVector& b) {
#define MEGALITH_LANE(j) (((j)&S) == 0 ? (j) : (j)-S + static_cast<int32_t>(kLanes))
  const WordVector low = __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
#define MEGALITH_LANE(j) (((j)&S) == 0 ? (j) + S : (j) + static_cast<int32_t>(kLanes))
  const WordVector high = __builtin_shuffle(a, b, MEGALITH_LANES(LaneIndex, MEGALITH_LANE));
#undef MEGALITH_LANE
  a = low;
  b = high;
}

template <int S>
MEGALITH_INLINE void exchange_rows(WordVector (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    if ((i & S) == 0) exchange<S>(rows[i], rows[i + S]);
  }
}

/// rows[i][j] <-> rows[j][i].
MEGALITH_INLINE void transpose_square(WordVector (&rows)[kLanes]) {
  exchange_rows<1>(rows);
  exchange_rows<2>(rows);
  exchange_rows<4>(rows);
#ifdef __AVX512F__
  exchange_rows<8>(rows);
#endif
}

#undef MEGALITH_LANES

}  // namespace megalith::cpu::MEGALITH_LEVEL
