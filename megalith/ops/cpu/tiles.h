// The AMX instructions that a matrix product needs. Tile numbers are part of the instructions, so they are
// template arguments; g++ 12's own intrinsics take literals only, and its _tile_loadconfig lets the compiler
// drop stores to the configuration.
#pragma once

#include "megalith/ops/cpu/level.h"

namespace megalith::cpu::MEGALITH_LEVEL {

/// The operand of ldtilecfg: bytes of a row, and rows, of each of eight tiles.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfiguration) == 64);

struct HardwareTiles {
  MEGALITH_INLINE static void configure(const TileConfiguration& configuration) {
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
  }
  template <int Tile>
  MEGALITH_INLINE static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  template <int Tile>
  MEGALITH_INLINE static void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  /// Hints that the data will not be read again soon, so that it does not displace what stays in the first
  /// cache.
  template <int Tile>
  MEGALITH_INLINE static void load_once(const void* from, int64_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile>
  MEGALITH_INLINE static void store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  /// Sum (fp32) += A (pairs of bf16 along the rows) times B (pairs of bf16 down the columns).
  template <int Sum, int A, int B>
  MEGALITH_INLINE static void dot_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
  }
};

}  // namespace megalith::cpu::MEGALITH_LEVEL
