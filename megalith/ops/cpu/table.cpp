#include "megalith/ops/cpu/dispatch.h"

#include "megalith/base/cpu.h"

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

namespace {

KernelTable make_table(IsaLevel level) {
  KernelTable table;
  switch (level) {
    case IsaLevel::v3:
      v3::fill_table(table);
      break;
    case IsaLevel::v4:
      v4::fill_table(table);
      break;
    default:
      bf16::fill_table(table);
  }
  return table;
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable table = make_table(active_isa());
  return table;
}

}  // namespace megalith::cpu
