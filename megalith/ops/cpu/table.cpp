#include "megalith/base/cpu.h"
#include "megalith/ops/cpu/dispatch.h"

namespace megalith::cpu {

namespace v3 {
void fill_table(KernelTable& table);
}
namespace v4 {
void fill_table(KernelTable& table);
}
namespace bf16 {
void fill_table(KernelTable& table);
}
namespace amx {
void add_tile_kernels(KernelTable& table);
}

namespace {

KernelTable make_table(IsaLevel level) {
  KernelTable table;
  switch (level) {
    case IsaLevel::v3:
      v3::fill_table(table);
      return table;
    case IsaLevel::v4:
      v4::fill_table(table);
      return table;
    case IsaLevel::bf16:
      bf16::fill_table(table);
      return table;
    case IsaLevel::amx:
      break;
  }
  // Processors with tiles run the vector dot product at half the rate of fp32 multiply-adds, so what does not
  // use tiles widens bf16 to fp32, as the v4 kernels do.
  v4::fill_table(table);
  KernelTable dots;
  bf16::fill_table(dots);
  table.peak.bf16 = dots.peak.bf16;
  amx::add_tile_kernels(table);
  return table;
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable table = make_table(active_isa());
  return table;
}

}  // namespace megalith::cpu
