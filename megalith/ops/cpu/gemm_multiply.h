// The inner kernel of matrix products: a tile of C in registers, one panel of B streaming past it.
#pragma once

#include <immintrin.h>

#include "megalith/ops/cpu/gemm_pack.h"
#include "megalith/ops/cpu/vectors.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kVectors = kPanel / kLanes;
/// 24 sums (AVX-512) or 12 (AVX2) stay in registers, beside a step of B and one broadcast of A.
#ifdef __AVX512F__
inline constexpr int64_t kTileVectors = 4;
#else
inline constexpr int64_t kTileVectors = 2;
#endif

/// What becomes of sums: they start from what `start` gives and go where `store` puts them. r and v are a row
/// and a vector of the tile.
struct SumsOf {
  float* c;
  int64_t ldc;
  StoreMode mode;

  MEGALITH_INLINE Vector start(int r, int v) const {
    return mode == StoreMode::add ? load_vector(c + r * ldc + v * kLanes) : Vector{};
  }
  template <int V>
  MEGALITH_INLINE void store(int r, int v, Vector sum) const {
    float* to = c + r * ldc + v * kLanes;
    if (mode == StoreMode::stream) {
      stream_vector(to, sum);
    } else {
      store_vector(to, sum);
    }
  }
  MEGALITH_INLINE SumsOf at(int64_t row, int64_t column) const { return {c + row * ldc + column, ldc, mode}; }
};

/// The end of a product: sums of earlier passes, if any, at the start, a bias, if any, and rounding at the
/// end.
template <class T>
struct ResultsOf {
  const float* sums;
  int64_t sums_stride;
  const float* bias;
  T* y;
  int64_t ldy;
  int64_t columns;  // from y on
  bool stream;

  MEGALITH_INLINE Vector start(int r, int v) const {
    return sums == nullptr ? Vector{} : load_vector(sums + r * sums_stride + v * kLanes);
  }
  template <int V>
  MEGALITH_INLINE void store(int r, int v, Vector sum) const {
    T* to = y + r * ldy + v * kLanes;
    const int64_t left = columns - v * kLanes;
    if (v + 1 == V && left < kLanes) {
      const PartialVector lanes{left};
      lanes.store(to, bias == nullptr ? sum : sum + lanes.load(bias + v * kLanes));
      return;
    }
    const Vector result = bias == nullptr ? sum : sum + load_vector(bias + v * kLanes);
    if (stream) {
      stream_vector(to, result);
    } else {
      store_vector(to, result);
    }
  }
  MEGALITH_INLINE ResultsOf at(int64_t row, int64_t column) const {
    return {sums == nullptr ? nullptr : sums + row * sums_stride + column,
            sums_stride,
            bias == nullptr ? nullptr : bias + column,
            y + row * ldy + column,
            ldy,
            columns - column,
            stream};
  }
};

/// Every element of C is one chain of additions over the units in order, whatever tile it falls into: a row's
/// result does not depend on the other rows.
template <class Unit, int R, int V, class Results>
MEGALITH_INLINE void multiply_tile(int64_t units, const char* a, int64_t row_bytes, int64_t unit_bytes,
                                   const uint32_t* b, const Results results) {
  constexpr int64_t kAhead = 128;  // bytes
  Vector sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = results.start(r, v);
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
    // A row's next lines: what streams by in B pushes them out of the first cache between two panels.
    if (const int64_t row = u % kLanes; row < R) __builtin_prefetch(a + row * row_bytes + kAhead);
    a += unit_bytes;
    b += kPanel;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) results.template store<V>(r, v, sums[r][v]);
  }
}

template <class Unit, int R, class Results>
void multiply_rows(int64_t columns, int64_t units, const char* a, int64_t row_bytes, int64_t unit_bytes,
                   const uint32_t* b, const Results& results) {
  for (int64_t j = 0; j < columns; j += kTileVectors * kLanes) {
    const int64_t left = columns - j;
    const Results here = results.at(0, j);
    if constexpr (kTileVectors == 4) {
      if (left > 3 * kLanes) {
        multiply_tile<Unit, R, 4>(units, a, row_bytes, unit_bytes, b + j, here);
      } else if (left > 2 * kLanes) {
        multiply_tile<Unit, R, 3>(units, a, row_bytes, unit_bytes, b + j, here);
      }
    }
    if (left > kLanes && (kTileVectors == 2 || left <= 2 * kLanes)) {
      multiply_tile<Unit, R, 2>(units, a, row_bytes, unit_bytes, b + j, here);
    } else if (left <= kLanes) {
      multiply_tile<Unit, R, 1>(units, a, row_bytes, unit_bytes, b + j, here);
    }
  }
}

template <class Unit, class Results>
MEGALITH_INLINE void multiply_panel(int64_t rows, int64_t columns, int64_t units, const void* a_raw,
                                    int64_t row_bytes, int64_t unit_bytes, const void* b_raw,
                                    Results results) {
  const char* a = static_cast<const char*>(a_raw);
  const uint32_t* b = static_cast<const uint32_t*>(b_raw);
  for (; rows >= 6; rows -= 6, a += 6 * row_bytes, results = results.at(6, 0)) {
    multiply_rows<Unit, 6>(columns, units, a, row_bytes, unit_bytes, b, results);
  }
  switch (rows) {
    case 5:
      return multiply_rows<Unit, 5>(columns, units, a, row_bytes, unit_bytes, b, results);
    case 4:
      return multiply_rows<Unit, 4>(columns, units, a, row_bytes, unit_bytes, b, results);
    case 3:
      return multiply_rows<Unit, 3>(columns, units, a, row_bytes, unit_bytes, b, results);
    case 2:
      return multiply_rows<Unit, 2>(columns, units, a, row_bytes, unit_bytes, b, results);
    case 1:
      return multiply_rows<Unit, 1>(columns, units, a, row_bytes, unit_bytes, b, results);
    default:
      return;
  }
}

template <class Unit>
void multiply(int64_t rows, int64_t columns, int64_t units, const void* a, int64_t row_bytes,
              int64_t unit_bytes, const void* b, float* c, int64_t ldc, StoreMode mode) {
  multiply_panel<Unit>(rows, columns, units, a, row_bytes, unit_bytes, b, SumsOf{c, ldc, mode});
}

template <class Unit, class T>
void finish(int64_t rows, int64_t columns, int64_t units, const void* a, int64_t row_bytes,
            int64_t unit_bytes, const void* b, const float* sums, int64_t sums_stride, const float* bias,
            void* y, int64_t ldy, bool stream) {
  multiply_panel<Unit>(rows, columns, units, a, row_bytes, unit_bytes, b,
                       ResultsOf<T>{sums, sums_stride, bias, static_cast<T*>(y), ldy, columns, stream});
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
