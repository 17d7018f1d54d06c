// Transposition of a square of 32-bit words in registers.
#pragma once

#include "megalith/ops/cpu/level.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace transpose_detail {

#ifdef __AVX512F__
typedef int32_t Index __attribute__((vector_size(64)));
#define MEGALITH_INDEX(F)                                                                                \
  Index {                                                                                                \
    F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), F(13), F(14), F(15) \
  }
#else
typedef int32_t Index __attribute__((vector_size(32)));
#define MEGALITH_INDEX(F)                          \
  Index {                                          \
    F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7) \
  }
#endif

/// Exchanges, between two registers, the words whose positions differ in bit S.
template <int S>
MEGALITH_INLINE void exchange(WordVector& a, WordVector& b) {
#define MEGALITH_LOW(j) ((j & S) == 0 ? j : j - S + kLanes)
#define MEGALITH_HIGH(j) ((j & S) == 0 ? j + S : j + kLanes)
  const WordVector low = __builtin_shuffle(a, b, MEGALITH_INDEX(MEGALITH_LOW));
  const WordVector high = __builtin_shuffle(a, b, MEGALITH_INDEX(MEGALITH_HIGH));
#undef MEGALITH_LOW
#undef MEGALITH_HIGH
  a = low;
  b = high;
}

template <int S>
MEGALITH_INLINE void stage(WordVector (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    if ((i & S) == 0) exchange<S>(rows[i], rows[i + S]);
  }
}

}  // namespace transpose_detail

/// rows[i][j] <-> rows[j][i].
MEGALITH_INLINE void transpose_square(WordVector (&rows)[kLanes]) {
  transpose_detail::stage<1>(rows);
  transpose_detail::stage<2>(rows);
  transpose_detail::stage<4>(rows);
#ifdef __AVX512F__
  transpose_detail::stage<8>(rows);
#endif
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
