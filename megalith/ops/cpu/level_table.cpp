// Collects the kernels of one level.
#include "megalith/ops/cpu/families.h"

namespace megalith::cpu::MEGALITH_LEVEL {

void fill_table(KernelTable& table);

void fill_table(KernelTable& table) {
  add_element_kernels(table);
  add_activation_kernels(table);
  add_dropout_kernels(table);
  add_norm_kernels(table);
  add_loss_kernels(table);
  add_optimizer_kernels(table);
  add_gemm_kernels(table);
  add_attention_forward_kernels(table);
  add_attention_backward_kernels(table);
  add_peak_kernels(table);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
