// Matrix-product kernels of this level.
#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/gemm_multiply.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

template <class Unit, class T>
GemmKernels make_kernels() {
  GemmKernels kernels;
  kernels.elements_per_unit = Unit::kElements;
  kernels.a_direct = sizeof(T) * Unit::kElements == 4;
  kernels.pack_b_rows = pack_b_rows<Unit, T>;
  kernels.pack_b_columns = pack_b_columns<Unit, T>;
  kernels.pack_a_columns = pack_a_columns<Unit, T>;
  if constexpr (sizeof(T) == 4) kernels.pack_a_rows = pack_a_rows<Unit, T>;
  kernels.multiply = multiply<Unit>;
  kernels.finish = finish<Unit, T>;
  kernels.slack_a = kSlackA;
  return kernels;
}

}  // namespace

void add_gemm_kernels(KernelTable& table) {
  table.gemm[0] = make_kernels<SingleUnit, float>();
#ifdef __AVX512BF16__
  table.gemm[1] = make_kernels<PairUnit, BrainFloat>();
#else
  table.gemm[1] = make_kernels<SingleUnit, BrainFloat>();
#endif
  table.gemm[2] = make_kernels<SingleUnit, HalfFloat>();
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
