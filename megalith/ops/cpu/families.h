// What each kernel source puts into the table of its level.
#pragma once

#include "megalith/ops/cpu/level.h"
#include "megalith/ops/cpu/table.h"

namespace megalith::cpu::MEGALITH_LEVEL {

void add_element_kernels(KernelTable& table);
void add_activation_kernels(KernelTable& table);
void add_dropout_kernels(KernelTable& table);
void add_norm_kernels(KernelTable& table);
void add_loss_kernels(KernelTable& table);
void add_optimizer_kernels(KernelTable& table);
void add_gemm_kernels(KernelTable& table);
void add_attention_forward_kernels(KernelTable& table);
void add_attention_backward_kernels(KernelTable& table);
void add_peak_kernels(KernelTable& table);

}  // namespace megalith::cpu::MEGALITH_LEVEL
