#include "megalith/ops/cpu/attention_forward.h"

#include "megalith/ops/cpu/families.h"

namespace megalith::cpu::MEGALITH_LEVEL {

void add_attention_forward_kernels(KernelTable& table) {
  set_attention_forward<SingleUnit, float>(table.attention[0]);
#ifdef __AVX512BF16__
  set_attention_forward<PairUnit, BrainFloat>(table.attention[1]);
#else
  set_attention_forward<SingleUnit, BrainFloat>(table.attention[1]);
#endif
  set_attention_forward<SingleUnit, HalfFloat>(table.attention[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
