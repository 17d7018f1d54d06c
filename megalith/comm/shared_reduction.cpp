#include "megalith/comm/shared_reduction.h"

#include <algorithm>
#include <array>

namespace megalith {

namespace {

template <class T>
void add(const std::vector<std::byte*>& sources, int64_t at, int64_t count, bool begins, float* sum) {
  const auto source = [&](size_t which) { return reinterpret_cast<const T*>(sources[which]) + at; };
  if (begins) {
    const T* first = source(0);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<float>(first[i]);
  }
  for (size_t s = begins ? 1 : 0; s < sources.size(); ++s) {
    const T* next = source(s);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<float>(next[i]);
  }
}

template <class T>
void round(const float* sum, int64_t count, T* target) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<T>(sum[i]);
}

constexpr int64_t kBlock = 2048;  // 8 KB: the running value stays in the first-level cache

}  // namespace

void reduce_in_order(const std::vector<std::byte*>& sources, int64_t begin, int64_t end, DType dtype,
                     std::byte* target) {
  dispatch_float(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::array<float, kBlock> sum;
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      add<T>(sources, at, count, true, sum.data());
      round(sum.data(), count, reinterpret_cast<T*>(target) + at);
    }
  });
}

void add_in_order(const std::vector<std::byte*>& sources, int64_t begin, int64_t end, DType dtype,
                  bool begins, float* sum) {
  dispatch_float(dtype, [&](auto type) {
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      add<typename decltype(type)::type>(sources, at, count, begins, sum + (at - begin));
    }
  });
}

void round_sums(const float* sum, int64_t count, DType dtype, std::byte* target) {
  dispatch_float(
      dtype, [&](auto type) { round(sum, count, reinterpret_cast<typename decltype(type)::type*>(target)); });
}

}  // namespace megalith
