// Packing of matrix operands into the panels that the inner kernel of a matrix product reads in order.
#pragma once

#include "megalith/ops/cpu/gemm_unit.h"
#include "megalith/ops/cpu/table.h"
#include "megalith/ops/cpu/transpose.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kPanel = GemmKernels::kPanel;
inline constexpr int64_t kPanelA = 6;

/// Room behind a panel of A for the vector store of its last step.
inline constexpr int64_t kSlackA = kLanes - kPanelA;

template <class Unit>
MEGALITH_INLINE int64_t units_of(int64_t k) {
  return (k + Unit::kElements - 1) / Unit::kElements;
}

/// Units of `n` neighbouring columns at step u of x[k][n].
template <class Unit, class T>
MEGALITH_INLINE void row_units(const T* x, int64_t ld, int64_t k, int64_t u, int64_t n, uint32_t* units) {
  const T* first = x + u * Unit::kElements * ld;
  const int64_t left = k - u * Unit::kElements;
  if (left >= Unit::kElements) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) units[j] = Unit::gather(first + j, ld, Unit::kElements);
  } else {
    for (int64_t j = 0; j < n; ++j) units[j] = Unit::gather(first + j, ld, left);
  }
}

template <class Unit, class T>
void pack_b_rows(const void* b_raw, int64_t ld, int64_t k, int64_t n, void* packed) {
  const T* b = static_cast<const T*>(b_raw);
  const int64_t units = units_of<Unit>(k);
  for (int64_t j = 0; j < n; j += kPanel) {
    uint32_t* panel = static_cast<uint32_t*>(packed) + j * units;
    const int64_t width = smaller(kPanel, n - j);
    for (int64_t u = 0; u < units; ++u) {
      if (width == kPanel) {
        row_units<Unit>(b + j, ld, k, u, kPanel, panel + u * kPanel);
      } else {
        row_units<Unit>(b + j, ld, k, u, width, panel + u * kPanel);
        for (int64_t i = width; i < kPanel; ++i) panel[u * kPanel + i] = 0;
      }
    }
  }
}

/// kLanes columns x kLanes units of b[n][k], read where b has them and zero elsewhere.
template <class Unit, class T>
MEGALITH_INLINE void pack_square(const T* b, int64_t ld, int64_t k, int64_t first, int64_t width,
                                 uint32_t* panel) {
  WordVector rows[kLanes];
  const bool direct = sizeof(T) * Unit::kElements == 4;
  const int64_t left = k - first;
  if (direct && width >= kLanes && left >= kLanes * Unit::kElements) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = *reinterpret_cast<const LooseWordVector*>(b + i * ld + first);
    }
  } else {
    for (int64_t i = 0; i < kLanes; ++i) {
      alignas(64) uint32_t units[kLanes] = {};
      if (i < width) {
        const int64_t count = smaller(kLanes, units_of<Unit>(left));
        for (int64_t u = 0; u < count; ++u) {
          const int64_t at = u * Unit::kElements;
          units[u] = Unit::gather(b + i * ld + first + at, 1, left - at);
        }
      }
      rows[i] = *reinterpret_cast<const LooseWordVector*>(units);
    }
  }
  transpose_square(rows);
  const int64_t count = smaller(kLanes, units_of<Unit>(left));
  for (int64_t u = 0; u < count; ++u) {
    *reinterpret_cast<LooseWordVector*>(panel + u * kPanel) = rows[u];
  }
}

template <class Unit, class T>
void pack_b_columns(const void* b_raw, int64_t ld, int64_t k, int64_t n, void* packed) {
  const T* b = static_cast<const T*>(b_raw);
  const int64_t units = units_of<Unit>(k);
  for (int64_t j = 0; j < n; j += kPanel) {
    uint32_t* panel = static_cast<uint32_t*>(packed) + j * units;
    for (int64_t i = 0; i < kPanel; i += kLanes) {
      const int64_t width = n - j - i;
      for (int64_t u = 0; u < units; u += kLanes) {
        pack_square<Unit>(b + (j + i) * ld, ld, k, u * Unit::kElements, width, panel + u * kPanel + i);
      }
    }
  }
}

/// Panels of six rows; each step is written with a whole vector whose tail the next step overwrites.
template <class Unit, class T>
void pack_a_columns(const void* a_raw, int64_t ld, int64_t k, int64_t m, void* packed) {
  constexpr int64_t kPanels = 8;
  const T* a = static_cast<const T*>(a_raw);
  const int64_t units = units_of<Unit>(k);
  const int64_t panel_words = units * kPanelA + kSlackA;
  for (int64_t i = 0; i < m; i += kPanels * kPanelA) {
    uint32_t* panels = static_cast<uint32_t*>(packed) + i / kPanelA * panel_words;
    const int64_t width = smaller(kPanels * kPanelA, m - i);
    const int64_t count = (width + kPanelA - 1) / kPanelA;
    alignas(64) uint32_t step[kPanels * kPanelA + kLanes] = {};
    for (int64_t u = 0; u < units; ++u) {
      if (width == kPanels * kPanelA) {
        row_units<Unit>(a + i, ld, k, u, kPanels * kPanelA, step);
      } else {
        row_units<Unit>(a + i, ld, k, u, width, step);
      }
      for (int64_t p = 0; p < count; ++p) {
        *reinterpret_cast<LooseWordVector*>(panels + p * panel_words + u * kPanelA) =
            *reinterpret_cast<const LooseWordVector*>(step + p * kPanelA);
      }
    }
  }
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
