// Loops that do nothing but reach a ceiling: arithmetic in registers, and streams through memory.
#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/gemm_unit.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

/// Twelve independent chains cover the latency of two pipelines.
template <class Unit>
double register_loop(int64_t steps) {
  constexpr int kChains = 12;
  Vector sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = Vector{} + static_cast<float>(i);
  WordVector a = WordVector{} + 0x3f803f80u, b = WordVector{} + 0x3f003f00u;
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = Unit::multiply_add(a, b, sums[i]);
      __asm__ volatile("" : "+x"(sums[i]));
    }
  }
  return static_cast<double>(steps) * kChains * kLanes * Unit::kElements * 2;
}

float read(const float* x, int64_t n) {
  Vector sums[4] = {};
  for (int64_t i = 0; i < n; i += 64) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < 64 / kLanes; ++v) sums[v % 4] += load_vector(x + i + v * kLanes);
  }
  const Vector total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += total[i];
  return sum;
}

void copy(const float* x, float* y, int64_t n) {
  __builtin_memcpy(y, x, static_cast<uint64_t>(n) * sizeof(float));
}

}  // namespace

void add_peak_kernels(KernelTable& table) {
  table.peak = {register_loop<SingleUnit>, nullptr, nullptr, read, copy};
#ifdef __AVX512BF16__
  table.peak.bf16 = register_loop<PairUnit>;
#endif
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
