#include "megalith/comm/shared_reduction.h"

#include <algorithm>
#include <array>

namespace megalith {

namespace {

template <class T>
void reduce(const std::vector<std::byte*>& sources, int64_t begin, int64_t end, std::byte* target) {
  constexpr int64_t kBlock = 2048;  // 8 KB: the running value stays in the first-level cache
  std::array<float, kBlock> value;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    const auto block = [&](std::byte* buffer) { return reinterpret_cast<T*>(buffer) + at; };
    const T* first = block(sources[0]);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) value[static_cast<size_t>(i)] = static_cast<float>(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* source = block(sources[s]);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) value[static_cast<size_t>(i)] += static_cast<float>(source[i]);
    }
    T* out = block(target);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(value[static_cast<size_t>(i)]);
  }
}

}  // namespace

void reduce_in_order(const std::vector<std::byte*>& sources, int64_t begin, int64_t end, DType dtype,
                     std::byte* target) {
  dispatch_float(dtype,
                 [&](auto type) { reduce<typename decltype(type)::type>(sources, begin, end, target); });
}

}  // namespace megalith
