// The ceilings of this machine, measured: what benchmarks divide by.
#pragma once

#include <string>
#include <vector>

#include "megalith/tensor/exec.h"

namespace megalith {

struct MachinePeak {
  double fp32_flops = 0;  // FLOP/s of fused multiply-adds in registers at the active level
  double bf16_flops = 0;  // the best of dot products and tiles; fp32_flops where there are neither
  double amx_flops = 0;   // 0 without tiles
  double read_bandwidth = 0, copy_bandwidth = 0;  // bytes/s from memory; a copy counts read and written bytes
};

/// The rates of arithmetic alone, which need no memory; the bandwidths stay 0. Takes about `seconds`.
MachinePeak measure_compute_peak(const ExecContext& context, double seconds);

/// Takes about `seconds` in all. Uses `context.threads` threads.
MachinePeak measure_machine_peak(const ExecContext& context, double seconds);

}  // namespace megalith
