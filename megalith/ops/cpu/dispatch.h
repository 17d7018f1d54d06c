// Access to the kernels of the active level.
#pragma once

#include "megalith/ops/cpu/table.h"
#include "megalith/tensor/dtype.h"

namespace megalith::cpu {

/// The table of active_isa().
const KernelTable& kernels();

inline int type_index(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::bf16:
      return 1;
    case DType::f16:
      return 2;
    default:
      fail("dtype {} is not a training type (F32, BF16, F16)", name(dtype));
  }
}

inline const TypedKernels& typed(DType dtype) {
  return kernels().typed[type_index(dtype)];
}

}  // namespace megalith::cpu
