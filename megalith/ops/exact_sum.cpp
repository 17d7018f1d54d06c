#include "megalith/ops/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

void ExactSum::add_group(double sum) {
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (bits == 0) return;
  const uint64_t exponent = bits >> 52 & 0x7ff;
  if (exponent == 0x7ff) {
    not_finite_ = 1;
    return;
  }
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  bins_[exponent / 32 - kFirstBin] += static_cast<unsigned __int128>(mantissa) << exponent % 32;
}

void ExactSum::add_squares(const ExecContext& context, TensorView x) {
  check(x.dtype() == DType::f32, "add_squares: {} is not F32", name(x.dtype()));
  constexpr int64_t kTask = int64_t{1} << 18, kChunkGroups = 256;
  ProfileScope scope(context, "optimizer");
  const float* data = x.data<float>();
  const int64_t n = x.elements(), whole = n / kGroup * kGroup;
  std::vector<ExactSum> parts(static_cast<size_t>(std::max(context.threads, 1)));
  parallel_tasks(context, (whole + kTask - 1) / kTask, [&](int64_t task, int thread) {
    ExactSum& part = parts[static_cast<size_t>(thread)];
    double sums[kChunkGroups];
    const int64_t end = std::min(whole, (task + 1) * kTask);
    for (int64_t at = task * kTask; at < end; at += kChunkGroups * kGroup) {
      const int64_t groups = std::min(kChunkGroups, (end - at) / kGroup);
      cpu::kernels().element.group_squares(data + at, sums, groups);
      for (int64_t group = 0; group < groups; ++group) part.add_group(sums[group]);
    }
  });
  for (const ExactSum& part : parts) add(part);
  if (whole < n) {
    float last[kGroup] = {};
    double sum = 0;
    std::copy(data + whole, data + n, last);
    cpu::kernels().element.group_squares(last, &sum, 1);
    add_group(sum);
  }
}

void ExactSum::add(const ExactSum& other) {
  for (size_t bin = 0; bin < bins_.size(); ++bin) bins_[bin] += other.bins_[bin];
  not_finite_ |= other.not_finite_;
}

double ExactSum::value() const {
  if (not_finite_ != 0) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (int bin = kBins; bin-- > 0;) {
    sum += std::ldexp(static_cast<double>(bins_[static_cast<size_t>(bin)]), 32 * (bin + kFirstBin) - 1075);
  }
  return sum;
}

}  // namespace megalith
