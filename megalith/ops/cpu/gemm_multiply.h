// The inner kernel of matrix products: a tile of C in registers, one panel of B streaming past it.
#pragma once

#include <immintrin.h>

#include "megalith/ops/cpu/gemm_pack.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kVectors = kPanel / kLanes;
/// 24 sums (AVX-512) or 12 (AVX2) stay in registers, beside a step of B and one broadcast of A.
#ifdef __AVX512F__
inline constexpr int64_t kTileVectors = 4;
#else
inline constexpr int64_t kTileVectors = 2;
#endif

/// Writes a vector, on a boundary of its size, past the caches.
MEGALITH_INLINE void stream_vector(float* to, Vector value) {
#ifdef __AVX512F__
  _mm512_stream_ps(to, bit_cast<__m512>(value));
#else
  _mm256_stream_ps(to, bit_cast<__m256>(value));
#endif
}

/// Every element of C is one chain of additions over the units in order, whatever tile it falls into: a row's
/// result does not depend on the other rows.
template <class Unit, int R, int V>
MEGALITH_INLINE void multiply_tile(int64_t units, const char* a, int64_t row_bytes, int64_t unit_bytes,
                                   const uint32_t* b, float* c, int64_t ldc, StoreMode mode) {
  Vector sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = Vector{};
  }
  if (mode == StoreMode::add) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = load_vector(c + r * ldc + v * kLanes);
    }
  }
  for (int64_t u = 0; u < units; ++u) {
    WordVector columns[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) columns[v] = *reinterpret_cast<const LooseWordVector*>(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      typedef uint32_t LooseWord __attribute__((aligned(2), may_alias));
      const WordVector row = WordVector{} + *reinterpret_cast<const LooseWord*>(a + r * row_bytes);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = Unit::multiply_add(row, columns[v], sums[r][v]);
    }
    a += unit_bytes;
    b += kPanel;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* to = c + r * ldc + v * kLanes;
      if (mode == StoreMode::stream) {
        stream_vector(to, sums[r][v]);
      } else {
        store_vector(to, sums[r][v]);
      }
    }
  }
}

template <class Unit, int R>
void multiply_rows(int64_t columns, int64_t units, const char* a, int64_t row_bytes, int64_t unit_bytes,
                   const uint32_t* b, float* c, int64_t ldc, StoreMode mode) {
  for (; columns > 0; columns -= kTileVectors * kLanes) {
    if constexpr (kTileVectors == 4) {
      if (columns > 3 * kLanes) {
        multiply_tile<Unit, R, 4>(units, a, row_bytes, unit_bytes, b, c, ldc, mode);
      } else if (columns > 2 * kLanes) {
        multiply_tile<Unit, R, 3>(units, a, row_bytes, unit_bytes, b, c, ldc, mode);
      }
    }
    if (columns > kLanes && (kTileVectors == 2 || columns <= 2 * kLanes)) {
      multiply_tile<Unit, R, 2>(units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    } else if (columns <= kLanes) {
      multiply_tile<Unit, R, 1>(units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    }
    b += kTileVectors * kLanes;
    c += kTileVectors * kLanes;
  }
}

template <class Unit>
void multiply(int64_t rows, int64_t columns, int64_t units, const void* a_raw, int64_t row_bytes,
              int64_t unit_bytes, const void* b_raw, float* c, int64_t ldc, StoreMode mode) {
  const char* a = static_cast<const char*>(a_raw);
  const uint32_t* b = static_cast<const uint32_t*>(b_raw);
  for (; rows >= 6; rows -= 6, a += 6 * row_bytes, c += 6 * ldc) {
    multiply_rows<Unit, 6>(columns, units, a, row_bytes, unit_bytes, b, c, ldc, mode);
  }
  switch (rows) {
    case 5:
      return multiply_rows<Unit, 5>(columns, units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    case 4:
      return multiply_rows<Unit, 4>(columns, units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    case 3:
      return multiply_rows<Unit, 3>(columns, units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    case 2:
      return multiply_rows<Unit, 2>(columns, units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    case 1:
      return multiply_rows<Unit, 1>(columns, units, a, row_bytes, unit_bytes, b, c, ldc, mode);
    default:
      return;
  }
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
