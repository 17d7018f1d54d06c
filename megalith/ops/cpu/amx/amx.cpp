// What the AMX level has of its own: matrix products and attention of bf16 on tiles, and their ceiling.
#include "megalith/ops/cpu/attention_backward.h"
#include "megalith/ops/cpu/attention_forward.h"
#include "megalith/ops/cpu/gemm_tiles.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

/// Four independent sums, as in the inner kernel, without loads.
double tile_loop(int64_t steps) {
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = 64;
    configuration.rows[tile] = kTile;
  }
  HardwareTiles::configure(configuration);
  HardwareTiles::zero<0>();
  HardwareTiles::zero<1>();
  HardwareTiles::zero<2>();
  HardwareTiles::zero<3>();
  HardwareTiles::zero<4>();
  HardwareTiles::zero<5>();
  HardwareTiles::zero<6>();
  HardwareTiles::zero<7>();
  const int64_t tile_steps = steps / 8;  // A step here is 16 times the work of a vector's.
  for (int64_t step = 0; step < tile_steps; ++step) {
    HardwareTiles::dot_bf16<0, 4, 6>();
    HardwareTiles::dot_bf16<1, 4, 7>();
    HardwareTiles::dot_bf16<2, 5, 6>();
    HardwareTiles::dot_bf16<3, 5, 7>();
  }
  return static_cast<double>(tile_steps) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace

void add_tile_kernels(KernelTable& table);

void add_tile_kernels(KernelTable& table) {
  table.gemm[1] = make_tile_kernels<HardwareTiles>();
  set_attention_forward<TileUnit<HardwareTiles>, BrainFloat>(table.attention[1]);
  set_attention_backward<TileUnit<HardwareTiles>, BrainFloat>(table.attention[1]);
  table.peak.amx = tile_loop;
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
