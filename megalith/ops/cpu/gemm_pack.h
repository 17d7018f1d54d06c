// Packing of matrix operands into the panels that the inner kernel of a matrix product reads in order.
#pragma once

#include "megalith/ops/cpu/gemm_unit.h"
#include "megalith/ops/cpu/shuffle.h"
#include "megalith/ops/cpu/table.h"

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

/// Fetches x[0 .. n) into the first cache.
template <class T>
MEGALITH_INLINE void fetch_lines(const T* x, int64_t n) {
  const char* bytes = reinterpret_cast<const char*>(x);
  for (int64_t at = 0; at < n * static_cast<int64_t>(sizeof(T)); at += 64) __builtin_prefetch(bytes + at);
}

/// Packs b[k][n], whose rows are contiguous. `units` is at least units_of(k); the rest is zero.
template <class Unit, class T>
void pack_b_rows(const void* b_raw, int64_t ld, int64_t k, int64_t n, int64_t units, void* packed) {
  const T* b = static_cast<const T*>(b_raw);
  const int64_t filled = units_of<Unit>(k);
  for (int64_t j = 0; j < n; j += kPanel) {
    uint32_t* panel = static_cast<uint32_t*>(packed) + j * units;
    const int64_t width = smaller(kPanel, n - j);
    for (int64_t u = 0; u < filled; ++u) {
      if (width == kPanel) {
        row_units<Unit>(b + j, ld, k, u, kPanel, panel + u * kPanel);
      } else {
        row_units<Unit>(b + j, ld, k, u, width, panel + u * kPanel);
        for (int64_t i = width; i < kPanel; ++i) panel[u * kPanel + i] = 0;
      }
    }
    for (int64_t i = filled * kPanel; i < units * kPanel; ++i) panel[i] = 0;
  }
}

/// A square of kLanes columns x kLanes units of b[n][k], from element `first` on, with zeros where b has
/// none.
template <class Unit, class T>
MEGALITH_INLINE void load_square(const T* b, int64_t ld, int64_t k, int64_t first, int64_t width,
                                 WordVector (&rows)[kLanes]) {
  constexpr bool kDirect = sizeof(T) * Unit::kElements == 4;
  const int64_t left = k - first;
  if (kDirect && width >= kLanes && left >= kLanes * Unit::kElements) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = *reinterpret_cast<const LooseWordVector*>(b + i * ld + first);
    }
    return;
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    alignas(64) uint32_t units[kLanes] = {};
    for (int64_t u = 0; i < width && u < kLanes; ++u) {
      const int64_t at = u * Unit::kElements;
      if (at < left) units[u] = Unit::gather(b + i * ld + first + at, 1, left - at);
    }
    rows[i] = *reinterpret_cast<const LooseWordVector*>(units);
  }
}

/// Fetches the next group of columns in the order of memory while squares of the current one are read across
/// it: the processor's own prefetching follows few runs at once, and long ones.
struct ReadAhead {
  const char* column;
  int64_t stride, lines, line = 0;

  MEGALITH_INLINE void fetch(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      __builtin_prefetch(column + line * 64);
      if (++line == lines) {
        line = 0;
        column += stride;
      }
    }
  }
};

/// Packs b[n][k], whose columns are contiguous, like pack_b_rows.
template <class Unit, class T>
void pack_b_columns(const void* b_raw, int64_t ld, int64_t k, int64_t n, int64_t units, void* packed) {
  const T* b = static_cast<const T*>(b_raw);
  for (int64_t j = 0; j < n; j += kPanel) {
    uint32_t* panel = static_cast<uint32_t*>(packed) + j * units;
    for (int64_t i = 0; i < kPanel; i += kLanes) {
      const int64_t bytes = k * static_cast<int64_t>(sizeof(T));
      ReadAhead ahead{reinterpret_cast<const char*>(b + (j + i + kLanes) * ld),
                      ld * static_cast<int64_t>(sizeof(T)), (bytes + 63) / 64};
      for (int64_t u = 0; u < units; u += kLanes) {
        WordVector square[kLanes];
        ahead.fetch(kLanes * kLanes * Unit::kElements * static_cast<int64_t>(sizeof(T)) / 64);
        load_square<Unit>(b + (j + i) * ld, ld, k, u * Unit::kElements, n - j - i, square);
        transpose_square(square);
        uint32_t* to = panel + u * kPanel + i;
        if (u + kLanes <= units) {
#pragma GCC unroll 16
          for (int64_t s = 0; s < kLanes; ++s)
            *reinterpret_cast<LooseWordVector*>(to + s * kPanel) = square[s];
        } else {
          for (int64_t s = 0; s < units - u; ++s) {
            *reinterpret_cast<LooseWordVector*>(to + s * kPanel) = square[s];
          }
        }
      }
    }
  }
}

/// Group p of kPanelA words of `words` -> to + p * stride, with a vector store each.
template <int kGroups>
MEGALITH_INLINE void scatter_groups(const uint32_t* words, uint32_t* to, int64_t stride) {
  constexpr int64_t kVectorsRead = (kGroups * kPanelA + kLanes - 1) / kLanes;
  // Read as they were written: a load that spans two stores would wait until both are in the cache.
  WordVector read[kVectorsRead + 1];
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVectorsRead; ++v) {
    read[v] = *reinterpret_cast<const LooseWordVector*>(words + v * kLanes);
  }
  read[kVectorsRead] = WordVector{};
#pragma GCC unroll 8
  for (int p = 0; p < kGroups; ++p) {
    const int64_t first = p * kPanelA / kLanes;
    const WordVector group = lanes_from(read[first], read[first + 1], p * kPanelA % static_cast<int>(kLanes));
    __builtin_memcpy(to + p * stride, &group, 32);
  }
}

/// The steps of `count` neighbouring panels -> to, to + stride, ...; each is written with a whole vector
/// whose tail the next step of its panel overwrites.
template <int kPanels>
MEGALITH_INLINE void store_step(const uint32_t* step, int64_t count, uint32_t* to, int64_t stride) {
  if (count == kPanels) return scatter_groups<kPanels>(step, to, stride);
  for (int64_t p = 0; p < count; ++p) {
    *reinterpret_cast<LooseWordVector*>(to + p * stride) =
        *reinterpret_cast<const LooseWordVector*>(step + p * kPanelA);
  }
}

/// Panels of six rows of a[m][k].
template <class Unit, class T>
void pack_a_rows(const void* a_raw, int64_t ld, int64_t k, int64_t m, int64_t units, void* packed) {
  constexpr int64_t kPanels = 8, kRows = kPanels * kPanelA;
  const T* a = static_cast<const T*>(a_raw);
  const int64_t panel_words = units * kPanelA + kSlackA;
  for (int64_t i = 0; i < m; i += kRows) {
    uint32_t* panels = static_cast<uint32_t*>(packed) + i / kPanelA * panel_words;
    const int64_t count = (smaller(kRows, m - i) + kPanelA - 1) / kPanelA;
    alignas(64) uint32_t steps[kLanes][kRows + kLanes] = {};
    for (int64_t u = 0; u < units; u += kLanes) {
      for (int64_t r = 0; r < kRows; r += kLanes) {
        WordVector square[kLanes];
        load_square<Unit>(a + (i + r) * ld, ld, k, u * Unit::kElements, m - i - r, square);
        transpose_square(square);
#pragma GCC unroll 16
        for (int64_t s = 0; s < kLanes; ++s) *reinterpret_cast<LooseWordVector*>(steps[s] + r) = square[s];
      }
      for (int64_t s = 0; s < smaller(kLanes, units - u); ++s) {
        store_step<kPanels>(steps[s], count, panels + (u + s) * kPanelA, panel_words);
      }
    }
  }
}

/// The same of a[k][m].
template <class Unit, class T>
void pack_a_columns(const void* a_raw, int64_t ld, int64_t k, int64_t m, int64_t units, void* packed) {
  constexpr int64_t kPanels = 8, kUnitsAhead = 8;
  const T* a = static_cast<const T*>(a_raw);
  const int64_t panel_words = units * kPanelA + kSlackA;
  for (int64_t i = 0; i < m; i += kPanels * kPanelA) {
    uint32_t* panels = static_cast<uint32_t*>(packed) + i / kPanelA * panel_words;
    const int64_t width = smaller(kPanels * kPanelA, m - i);
    const int64_t count = (width + kPanelA - 1) / kPanelA;
    alignas(64) uint32_t step[kPanels * kPanelA + kLanes] = {};
    for (int64_t u = 0; u < units; ++u) {
      // Rows are often pages apart, where the processor's own prefetching gives up.
      if (const int64_t ahead = (u + kUnitsAhead) * Unit::kElements; ahead + Unit::kElements <= k) {
        for (int64_t e = 0; e < Unit::kElements; ++e) fetch_lines(a + (ahead + e) * ld + i, width);
      }
      if (width == kPanels * kPanelA) {
        row_units<Unit>(a + i, ld, k, u, kPanels * kPanelA, step);
      } else {
        row_units<Unit>(a + i, ld, k, u, width, step);
      }
      store_step<kPanels>(step, count, panels + u * kPanelA, panel_words);
    }
  }
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
