// What a step along the summed dimension of a matrix product consists of.
#pragma once

#include "megalith/ops/cpu/storage.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace megalith::cpu::MEGALITH_LEVEL {

/// One fp32 number a step.
struct SingleUnit {
  static constexpr int64_t kElements = 1;
  MEGALITH_INLINE static Vector multiply_add(WordVector a, WordVector b, Vector sum) {
    return bit_cast<Vector>(a) * bit_cast<Vector>(b) + sum;
  }
  /// The unit that holds element k of a strided run of numbers; the run has `count` elements left.
  template <class T>
  MEGALITH_INLINE static uint32_t gather(const T* x, int64_t, int64_t) {
    return bit_cast<uint32_t>(load(*x));
  }
};

/// Two bf16 numbers a step, multiplied by the dot-product instruction or by tiles.
struct PairUnit {
  static constexpr int64_t kElements = 2;
#ifdef __AVX512BF16__
  MEGALITH_INLINE static Vector multiply_add(WordVector a, WordVector b, Vector sum) {
    return bit_cast<Vector>(
        _mm512_dpbf16_ps(bit_cast<__m512>(sum), bit_cast<__m512bh>(a), bit_cast<__m512bh>(b)));
  }
#endif
  MEGALITH_INLINE static uint32_t gather(const BrainFloat* x, int64_t stride, int64_t left) {
    const uint32_t high = left > 1 ? x[stride].bits : 0u;
    return x->bits | (high << 16);
  }
};

}  // namespace megalith::cpu::MEGALITH_LEVEL
