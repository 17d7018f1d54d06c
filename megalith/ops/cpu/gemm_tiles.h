// The inner kernel of matrix products on tiles of 16 x 16 sums: two by two of them, each pair of A and B
// tiles loaded once a step. A lies packed in tile order, 32 rows x 64 bytes a step, because rows of the
// matrix itself are often a multiple of 4 KiB apart and would share a few sets of the first cache.
//
// `Tiles` is HardwareTiles, or an emulation in tests.
#pragma once

#include "megalith/ops/cpu/gemm_pack.h"
#include "megalith/ops/cpu/tiles.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kTile = 16;             // rows of a tile, and units in its 64 bytes
inline constexpr int64_t kStepRows = 2 * kTile;  // rows of A in a step
inline constexpr int64_t kStepWords = kStepRows * kTile;

/// Sums 0..3 are C's tiles, 4 and 5 A's, 6 and 7 B's.
template <class Tiles, bool TwoRows, bool TwoColumns>
MEGALITH_INLINE void multiply_block(int64_t units, const uint32_t* a, const uint32_t* b, float* c,
                                    int64_t ldc, StoreMode mode) {
  const int64_t c_stride = ldc * 4, lower = kTile * ldc;
  if (mode == StoreMode::add) {
    Tiles::template load<0>(c, c_stride);
    if constexpr (TwoColumns) Tiles::template load<1>(c + kTile, c_stride);
    if constexpr (TwoRows) Tiles::template load<2>(c + lower, c_stride);
    if constexpr (TwoRows && TwoColumns) Tiles::template load<3>(c + lower + kTile, c_stride);
  } else {
    Tiles::template zero<0>();
    if constexpr (TwoColumns) Tiles::template zero<1>();
    if constexpr (TwoRows) Tiles::template zero<2>();
    if constexpr (TwoRows && TwoColumns) Tiles::template zero<3>();
  }
  for (int64_t u = 0; u < units; u += kTile) {
    Tiles::template load_once<6>(b, kPanel * 4);
    Tiles::template load<4>(a, kTile * 4);
    Tiles::template dot_bf16<0, 4, 6>();
    if constexpr (TwoColumns) {
      Tiles::template load_once<7>(b + kTile, kPanel * 4);
      Tiles::template dot_bf16<1, 4, 7>();
    }
    if constexpr (TwoRows) {
      Tiles::template load<5>(a + kTile * kTile, kTile * 4);
      Tiles::template dot_bf16<2, 5, 6>();
    }
    if constexpr (TwoRows && TwoColumns) Tiles::template dot_bf16<3, 5, 7>();
    a += kStepWords;
    b += kTile * kPanel;
  }
  Tiles::template store<0>(c, c_stride);
  if constexpr (TwoColumns) Tiles::template store<1>(c + kTile, c_stride);
  if constexpr (TwoRows) Tiles::template store<2>(c + lower, c_stride);
  if constexpr (TwoRows && TwoColumns) Tiles::template store<3>(c + lower + kTile, c_stride);
}

/// GemmKernels::multiply for at most 32 rows (tiles are stored through the caches always); A's strides are
/// those of its packed panel.
template <class Tiles>
void multiply_tiles(int64_t rows, int64_t columns, int64_t units, const void* a_raw, int64_t, int64_t,
                    const void* b_raw, float* c, int64_t ldc, StoreMode mode) {
  const uint32_t* a = static_cast<const uint32_t*>(a_raw);
  const uint32_t* b = static_cast<const uint32_t*>(b_raw);
  const int64_t upper = smaller(rows, kTile), lower = rows - upper;
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    const bool is_b = tile >= 6, is_lower = tile == 2 || tile == 3 || tile == 5;
    configuration.row_bytes[tile] = 64;
    // A tile without rows would be refused; those of an absent lower half are not used.
    configuration.rows[tile] = static_cast<uint8_t>(is_b || (is_lower && lower == 0) ? kTile
                                                    : is_lower                       ? lower
                                                                                     : upper);
  }
  Tiles::configure(configuration);
  for (int64_t j = 0; j < columns; j += 2 * kTile) {
    const bool two = columns - j > kTile;
    if (lower > 0 && two) {
      multiply_block<Tiles, true, true>(units, a, b + j, c + j, ldc, mode);
    } else if (lower > 0) {
      multiply_block<Tiles, true, false>(units, a, b + j, c + j, ldc, mode);
    } else if (two) {
      multiply_block<Tiles, false, true>(units, a, b + j, c + j, ldc, mode);
    } else {
      multiply_block<Tiles, false, false>(units, a, b + j, c + j, ldc, mode);
    }
  }
}

/// a[m][k] -> rows first_row .. of panels of 32 rows in tile order.
inline void pack_a_tiles_rows(const void* a_raw, int64_t ld, int64_t k, int64_t m, int64_t units,
                              void* packed, int64_t first_row) {
  const BrainFloat* a = static_cast<const BrainFloat*>(a_raw);
  for (int64_t i = 0; i < m; ++i) {
    const int64_t r = first_row + i;
    uint32_t* row =
        static_cast<uint32_t*>(packed) + r / kStepRows * kStepRows * units + r % kStepRows * kTile;
    for (int64_t u = 0; u < units; u += kTile) {
      uint32_t* to = row + u / kTile * kStepWords;
      const int64_t left = k - 2 * u;
      const BrainFloat* from = a + i * ld + 2 * u;
      if (left >= 2 * kTile) {
        __builtin_memcpy(to, from, kTile * 4);
      } else {
        for (int64_t s = 0; s < kTile; ++s) {
          to[s] = 2 * s < left ? PairUnit::gather(from + 2 * s, 1, left - 2 * s) : 0;
        }
      }
    }
  }
}
inline void pack_a_tiles_rows(const void* a, int64_t ld, int64_t k, int64_t m, int64_t units, void* packed) {
  pack_a_tiles_rows(a, ld, k, m, units, packed, 0);
}

/// a[k][m] -> the same panels, by transposing squares.
inline void pack_a_tiles_columns(const void* a_raw, int64_t ld, int64_t k, int64_t m, int64_t units,
                                 void* packed) {
  const BrainFloat* a = static_cast<const BrainFloat*>(a_raw);
  const int64_t filled = units_of<PairUnit>(k);
  for (int64_t i = 0; i < m; i += kLanes) {
    uint32_t* rows =
        static_cast<uint32_t*>(packed) + i / kStepRows * kStepRows * units + i % kStepRows * kTile;
    const int64_t width = smaller(kLanes, m - i);
    for (int64_t u = 0; u < units; u += kLanes) {
      WordVector square[kLanes] = {};
      for (int64_t s = 0; s < kLanes && u + s < filled; ++s) {
        alignas(64) uint32_t step[kLanes] = {};
        if (width == kLanes) {
          row_units<PairUnit>(a + i, ld, k, u + s, kLanes, step);
        } else {
          row_units<PairUnit>(a + i, ld, k, u + s, width, step);
        }
        square[s] = *reinterpret_cast<const LooseWordVector*>(step);
      }
      transpose_square(square);
      uint32_t* to = rows + u / kTile * kStepWords + u % kTile;
      for (int64_t s = 0; s < width; ++s) *reinterpret_cast<LooseWordVector*>(to + s * kTile) = square[s];
    }
  }
}

template <class Tiles>
GemmKernels make_tile_kernels() {
  GemmKernels kernels;
  kernels.elements_per_unit = PairUnit::kElements;
  kernels.unit_multiple = kTile;
  kernels.packs_all_rows = true;
  // 32 rows of A stay in the first cache while panels of B stream by.
  kernels.most_units = kernels.most_units_alone = 256;
  kernels.row_tile = kStepRows;
  kernels.pack_b_rows = pack_b_rows<PairUnit, BrainFloat>;
  kernels.pack_b_columns = pack_b_columns<PairUnit, BrainFloat>;
  kernels.pack_a_columns = pack_a_tiles_columns;
  kernels.pack_a_rows = pack_a_tiles_rows;
  kernels.multiply = multiply_tiles<Tiles>;
  return kernels;
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
