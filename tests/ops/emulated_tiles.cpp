// The tile kernels with tiles emulated in plain C++, so that everything but the instructions themselves is
// tested on every machine. This source is compiled like a kernel, for a level of its own.
#include "megalith/ops/cpu/attention_backward.h"
#include "megalith/ops/cpu/attention_forward.h"
#include "megalith/ops/cpu/gemm_tiles.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

/// Follows the instruction set's description of palette 1, and traps what the hardware would refuse.
struct EmulatedTiles {
  struct Tile {
    uint32_t words[16][16];
  };
  static thread_local Tile tiles[8];
  static thread_local TileConfiguration configuration;

  static void configure(const TileConfiguration& wanted) {
    for (int t = 0; t < 8; ++t) {
      if (wanted.rows[t] == 0 || wanted.rows[t] > 16 || wanted.row_bytes[t] != 64) __builtin_trap();
    }
    configuration = wanted;
    for (Tile& tile : tiles) tile = {};
  }
  template <int T>
  static void zero() {
    tiles[T] = {};
  }
  template <int T>
  static void load(const void* from, int64_t stride) {
    zero<T>();
    for (int row = 0; row < configuration.rows[T]; ++row) {
      __builtin_memcpy(tiles[T].words[row], static_cast<const char*>(from) + row * stride, 64);
    }
  }
  template <int T>
  static void load_once(const void* from, int64_t stride) {
    load<T>(from, stride);
  }
  template <int T>
  static void store(void* to, int64_t stride) {
    for (int row = 0; row < configuration.rows[T]; ++row) {
      __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles[T].words[row], 64);
    }
  }
  template <int Sum, int A, int B>
  static void dot_bf16() {
    if (configuration.rows[Sum] != configuration.rows[A] || configuration.rows[B] != 16) __builtin_trap();
    for (int m = 0; m < configuration.rows[Sum]; ++m) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 16; ++n) {
          const uint32_t a = tiles[A].words[m][k], b = tiles[B].words[k][n];
          float sum = bit_cast<float>(tiles[Sum].words[m][n]);
          sum += bit_cast<float>(a << 16) * bit_cast<float>(b << 16);
          sum += bit_cast<float>(a & 0xffff0000u) * bit_cast<float>(b & 0xffff0000u);
          tiles[Sum].words[m][n] = bit_cast<uint32_t>(sum);
        }
      }
    }
  }
};

thread_local EmulatedTiles::Tile EmulatedTiles::tiles[8];
thread_local TileConfiguration EmulatedTiles::configuration;

}  // namespace

void emulated_tile_kernels(GemmKernels& gemm, AttentionKernels& attention);

void emulated_tile_kernels(GemmKernels& gemm, AttentionKernels& attention) {
  gemm = make_tile_kernels<EmulatedTiles>();
  set_attention_forward<TileUnit<EmulatedTiles>, BrainFloat>(attention);
  set_attention_backward<TileUnit<EmulatedTiles>, BrainFloat>(attention);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
