// Whole vectors of the storage types, for loops whose time goes into conversions.
#pragma once

#include <immintrin.h>

#include "megalith/ops/cpu/storage.h"

namespace megalith::cpu::MEGALITH_LEVEL {

typedef uint16_t HalfWords __attribute__((vector_size(kLanes * 2)));
typedef uint16_t LooseHalfWords __attribute__((vector_size(kLanes * 2), aligned(2), may_alias));

MEGALITH_INLINE Vector load_vector(const BrainFloat* x) {
  const HalfWords bits = *reinterpret_cast<const LooseHalfWords*>(x);
  return bit_cast<Vector>(__builtin_convertvector(bits, WordVector) << 16);
}
MEGALITH_INLINE Vector load_vector(const HalfFloat* x) {
#ifdef __AVX512F__
  return bit_cast<Vector>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
#else
  return bit_cast<Vector>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
#endif
}

/// Nearest, ties to even; a NaN stays one. The instruction of AVX512_BF16, like the dot product that reads
/// its results, takes subnormal numbers (below 1.2e-38) for zero.
MEGALITH_INLINE void store_vector(BrainFloat* y, Vector value) {
#ifdef __AVX512BF16__
  const HalfWords bits = bit_cast<HalfWords>(_mm512_cvtneps_pbh(bit_cast<__m512>(value)));
#else
  const WordVector word = bit_cast<WordVector>(value), high = word >> 16;
  const WordVector rounded = (word + 0x7fffu + (high & 1u)) >> 16;
  const HalfWords bits = __builtin_convertvector(
      (word & 0x7fffffffu) > (WordVector{} + 0x7f800000u) ? high | 0x40u : rounded, HalfWords);
#endif
  *reinterpret_cast<LooseHalfWords*>(y) = bits;
}
MEGALITH_INLINE void store_vector(HalfFloat* y, Vector value) {
#ifdef __AVX512F__
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y),
                      _mm512_cvtps_ph(bit_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y),
                   _mm256_cvtps_ph(bit_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
#endif
}

/// Writes a vector, on a boundary of its size, past the caches.
MEGALITH_INLINE void stream_vector(float* to, Vector value) {
#ifdef __AVX512F__
  _mm512_stream_ps(to, bit_cast<__m512>(value));
#else
  _mm256_stream_ps(to, bit_cast<__m256>(value));
#endif
}

/// The same rounded to 16 bits.
template <class T>
MEGALITH_INLINE void stream_vector(T* to, Vector value) {
  static_assert(sizeof(T) == 2);
  T rounded[kLanes];
  store_vector(rounded, value);
#ifdef __AVX512F__
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), *reinterpret_cast<const __m256i_u*>(rounded));
#else
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), *reinterpret_cast<const __m128i_u*>(rounded));
#endif
}

/// How a loop reads and writes kLanes elements.
struct WholeVector {
  template <class T>
  MEGALITH_INLINE Vector load(const T* x) const {
    return load_vector(x);
  }
  template <class T>
  MEGALITH_INLINE void store(T* y, Vector value) const {
    store_vector(y, value);
  }
};

/// The same for the `count` elements that are left, through a padded copy: an element gets the same bits
/// wherever in the range it stands.
struct PartialVector {
  int64_t count;

  template <class T>
  MEGALITH_INLINE Vector load(const T* x) const {
    T padded[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
    return load_vector(padded);
  }
  template <class T>
  MEGALITH_INLINE void store(T* y, Vector value) const {
    T padded[kLanes];
    store_vector(padded, value);
    for (int64_t i = 0; i < count; ++i) y[i] = padded[i];
  }
};

/// body(lanes, i) for i = 0, kLanes, ... below n, where `lanes` loads and stores the elements from i on.
template <class Body>
MEGALITH_INLINE void for_vectors(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(WholeVector{}, i);
  if (i < n) body(PartialVector{n - i}, i);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
