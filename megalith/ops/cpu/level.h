// Namespace and vector types of the instruction-set level that a kernel source is being compiled for.
#pragma once

#include <cstdint>

#ifndef MEGALITH_LEVEL
#error "kernel sources are compiled once a level, with MEGALITH_LEVEL naming it"
#endif

#define MEGALITH_INLINE inline __attribute__((always_inline))
#define MEGALITH_INLINE_LAMBDA __attribute__((always_inline))

namespace megalith::cpu::MEGALITH_LEVEL {

#ifdef __AVX512F__
inline constexpr int64_t kLanes = 16;
#else
inline constexpr int64_t kLanes = 8;
#endif

/// One register of fp32 numbers or 32-bit words. The aliasing, unaligned types are for loads and stores.
typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef uint32_t WordVector __attribute__((vector_size(kLanes * 4)));
typedef float LooseVector __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef uint32_t LooseWordVector __attribute__((vector_size(kLanes * 4), aligned(2), may_alias));

MEGALITH_INLINE Vector load_vector(const float* x) {
  return *reinterpret_cast<const LooseVector*>(x);
}
MEGALITH_INLINE void store_vector(float* x, Vector value) {
  *reinterpret_cast<LooseVector*>(x) = value;
}
template <class To, class From>
MEGALITH_INLINE To bit_cast(From from) {
  return __builtin_bit_cast(To, from);
}
template <class T>
MEGALITH_INLINE T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
MEGALITH_INLINE T larger(T a, T b) {
  return a < b ? b : a;
}
MEGALITH_INLINE int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
