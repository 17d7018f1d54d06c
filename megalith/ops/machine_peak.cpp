#include "megalith/ops/machine_peak.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

/// Runs `work` (which returns what one thread has done) on all threads at once, again and again for
/// `seconds`, and returns the best total per second: a ceiling is what the machine can do when nothing
/// disturbs it.
double best_rate(const ExecContext& context, double seconds, const std::function<double(int thread)>& work) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const Clock::time_point start = Clock::now();
  double best = 0;
  int rounds = 0;
  while (rounds < 3 || elapsed(start) < seconds) {
    double total = 0, took = 0;
#pragma omp parallel num_threads(std::max(1, context.threads)) reduction(+ : total) reduction(max : took)
    {
#pragma omp barrier
      const Clock::time_point begin = Clock::now();
      total += work(omp_get_thread_num());
      took = elapsed(begin);
    }
    if (took > 0) best = std::max(best, total / took);
    ++rounds;
  }
  return best;
}

}  // namespace

MachinePeak measure_compute_peak(const ExecContext& context, double seconds) {
  const cpu::PeakKernels& kernels = cpu::kernels().peak;
  constexpr int64_t kSteps = 1 << 18;
  const double share = seconds / 3;
  MachinePeak peak;
  peak.fp32_flops = best_rate(context, share, [&](int) { return kernels.fp32(kSteps); });
  peak.bf16_flops = peak.fp32_flops;
  if (kernels.bf16 != nullptr) {
    peak.bf16_flops =
        std::max(peak.bf16_flops, best_rate(context, share, [&](int) { return kernels.bf16(kSteps); }));
  }
  if (kernels.amx != nullptr) {
    peak.amx_flops = best_rate(context, share, [&](int) { return kernels.amx(kSteps); });
    peak.bf16_flops = std::max(peak.bf16_flops, peak.amx_flops);
  }
  return peak;
}

MachinePeak measure_machine_peak(const ExecContext& context, double seconds) {
  MachinePeak peak = measure_compute_peak(context, seconds * 0.6);
  const cpu::PeakKernels& kernels = cpu::kernels().peak;
  const double share = seconds * 0.2;

  // Larger than any cache that a thread could call its own.
  constexpr int64_t kFloats = int64_t{1} << 25;
  ArenaScope arena(context.workspace);
  const int64_t threads = std::max(1, context.threads);
  float* memory = context.workspace.allocate(DType::f32, {threads, kFloats}).data<float>();
  parallel_blocks(context, threads * kFloats, kFloats,
                  [&](int64_t begin, int64_t end) { std::fill(memory + begin, memory + end, 1.0f); });
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  peak.read_bandwidth = best_rate(context, share, [&](int thread) {
    sinks[static_cast<size_t>(thread) * 16] = kernels.read(memory + thread * kFloats, kFloats);
    return static_cast<double>(kFloats) * sizeof(float);
  });
  peak.copy_bandwidth = best_rate(context, share, [&](int thread) {
    float* half = memory + thread * kFloats;
    kernels.copy(half, half + kFloats / 2, kFloats / 2);
    return static_cast<double>(kFloats) * sizeof(float);
  });
  return peak;
}

}  // namespace megalith
