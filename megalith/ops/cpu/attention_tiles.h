// Operands of attention in the units of the matrix-product kernel: query rows as they stand, keys and values
// packed in blocks of 64.
#pragma once

#include "megalith/ops/cpu/gemm_multiply.h"
#include "megalith/ops/cpu/math.h"
#include "megalith/ops/cpu/philox.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kKeyBlock = kPanel;

/// Cuts aligned pieces from the caller's scratch; with a null base it only counts.
struct Scratch {
  char* base;
  int64_t used = 0;
  template <class T>
  MEGALITH_INLINE T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(base + used);
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return piece;
  }
};

MEGALITH_INLINE int64_t padded_size(int64_t head_size) {
  return round_up(head_size, kPanel);
}
template <class Unit>
MEGALITH_INLINE int64_t block_units() {
  return kKeyBlock / Unit::kElements;
}
/// Words of one block of keys packed by columns, and of one block of keys or values packed by rows.
template <class Unit>
MEGALITH_INLINE int64_t column_block_words(int64_t head_size) {
  return units_of<Unit>(head_size) * kKeyBlock;
}
template <class Unit>
MEGALITH_INLINE int64_t row_block_words(int64_t head_size) {
  return padded_size(head_size) * block_units<Unit>();
}

/// Rows of x as units, zero-padded to whole units.
template <class Unit, class T>
MEGALITH_INLINE void load_rows(const T* x, int64_t stride, int64_t rows, int64_t head_size, uint32_t* units) {
  const int64_t count = units_of<Unit>(head_size);
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * stride;
    uint32_t* to = units + r * count;
    const int64_t whole = head_size / Unit::kElements;
#pragma omp simd
    for (int64_t u = 0; u < whole; ++u) to[u] = Unit::gather(row + u * Unit::kElements, 1, Unit::kElements);
    if (whole < count) to[whole] = Unit::gather(row + whole * Unit::kElements, 1, 1);
  }
}

/// fp32 rows rounded to units: `units` may be the fp32 rows themselves where a unit is one number.
template <class Unit>
MEGALITH_INLINE void round_row(const float* x, int64_t n, uint32_t* units) {
  if constexpr (Unit::kElements == 1) {
    (void)x, (void)n, (void)units;
  } else {
#pragma omp simd
    for (int64_t u = 0; u < n / 2; ++u) {
      units[u] = store<BrainFloat>(x[2 * u]).bits |
                 (static_cast<uint32_t>(store<BrainFloat>(x[2 * u + 1]).bits) << 16);
    }
  }
}

/// Two fp32 rows rounded and interleaved: the units of their transpose.
MEGALITH_INLINE void round_row_pair(const float* even, const float* odd, int64_t n, uint32_t* units) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    units[j] =
        store<BrainFloat>(even[j]).bits | (static_cast<uint32_t>(store<BrainFloat>(odd[j]).bits) << 16);
  }
}

/// The keys that a query may see, as offsets into a key block that starts at `block_begin`.
struct Visible {
  int32_t low, high;
};
MEGALITH_INLINE Visible visible_keys(int64_t query, int64_t document_start, int64_t block_begin) {
  const int64_t low = larger<int64_t>(document_start - block_begin, 0);
  const int64_t high = smaller<int64_t>(query + 1 - block_begin, kKeyBlock);
  return {static_cast<int32_t>(low), static_cast<int32_t>(high)};
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
