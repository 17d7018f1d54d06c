// Fused optimizer loops over flat fp32 buffers; each element is read and written once.
#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/vectors.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

/// Stands for "no copy".
struct Nothing {};

template <class T>
MEGALITH_INLINE void write_copy(T* copy, int64_t i, float value) {
  copy[i] = store<T>(value);
}
template <>
MEGALITH_INLINE void write_copy<Nothing>(Nothing*, int64_t, float) {}

/// Calls loop(begin, end, copy) for ranges that cover 0 .. n; element i is copied to copy[i - begin].
template <class T, class Loop>
MEGALITH_INLINE void in_ranges(RoundedCopy copy, int64_t n, Loop loop) {
  T* data = static_cast<T*>(copy.data);
  constexpr int64_t kVectorBytes = sizeof(Vector), kRange = 2048;
  if (!copy.past_caches || reinterpret_cast<uintptr_t>(data) % kVectorBytes != 0) return loop(0, n, data);
  constexpr int64_t kElements = kVectorBytes / static_cast<int64_t>(sizeof(T));
  const int64_t whole = n / kElements * kElements;
  for (int64_t begin = 0; begin < whole; begin += kRange) {
    alignas(kVectorBytes) T rounded[kRange];
    const int64_t end = smaller(whole, begin + kRange);
    loop(begin, end, rounded);
    for (int64_t i = begin; i < end; i += kElements) {
      stream_vector(reinterpret_cast<float*>(data + i),
                    *reinterpret_cast<const LooseVector*>(rounded + (i - begin)));
    }
  }
  _mm_sfence();
  loop(whole, n, data + whole);
}

template <class Loop>
MEGALITH_INLINE void with_copy(RoundedCopy copy, int64_t n, Loop loop) {
  switch (copy.kind) {
    case CopyKind::none:
      return loop(0, n, static_cast<Nothing*>(nullptr));
    case CopyKind::bf16:
      return in_ranges<BrainFloat>(copy, n, loop);
    case CopyKind::f16:
      return in_ranges<HalfFloat>(copy, n, loop);
  }
}

struct Moments {
  float m, v, direction;
};

MEGALITH_INLINE Moments advance(const AdamWStep& s, float inverse1, float inverse2, float m, float v, float g,
                                float w) {
  m = s.beta1 * m + (1.0f - s.beta1) * g;
  v = s.beta2 * v + (1.0f - s.beta2) * (g * g);
  const float direction = m * inverse1 / (__builtin_sqrtf(v * inverse2) + s.epsilon) + s.weight_decay * w;
  return {m, v, direction};
}

void adamw(const AdamWStep& step, float* weight, float* m, float* v, const float* gradient, RoundedCopy copy,
           int64_t n) {
  const AdamWStep s = step;
  const float inverse1 = 1.0f / s.bias_correction1, inverse2 = 1.0f / s.bias_correction2;
  with_copy(copy, n, [=](int64_t begin, int64_t end, auto* rounded) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const Moments next =
          advance(s, inverse1, inverse2, m[i], v[i], gradient[i] * s.gradient_scale, weight[i]);
      const float w = weight[i] - s.learning_rate * next.direction;
      m[i] = next.m;
      v[i] = next.v;
      weight[i] = w;
      write_copy(rounded, i - begin, w);
    }
  });
}

void sgd(float learning_rate, float momentum, float weight_decay, float gradient_scale, float* weight,
         float* u, const float* gradient, RoundedCopy copy, int64_t n) {
  with_copy(copy, n, [=](int64_t begin, int64_t end, auto* rounded) {
    if (u == nullptr) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const float g = gradient[i] * gradient_scale + weight_decay * weight[i];
        const float w = weight[i] - learning_rate * g;
        weight[i] = w;
        write_copy(rounded, i - begin, w);
      }
      return;
    }
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = gradient[i] * gradient_scale + weight_decay * weight[i];
      const float next = momentum * u[i] + g;
      const float w = weight[i] - learning_rate * next;
      u[i] = next;
      weight[i] = w;
      write_copy(rounded, i - begin, w);
    }
  });
}

void lamb_direction(const AdamWStep& step, const float* weight, float* m, float* v, const float* gradient,
                    float* direction, int64_t n, double* weight_squares, double* direction_squares) {
  const AdamWStep s = step;
  const float inverse1 = 1.0f / s.bias_correction1, inverse2 = 1.0f / s.bias_correction2;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const Moments next =
        advance(s, inverse1, inverse2, m[i], v[i], gradient[i] * s.gradient_scale, weight[i]);
    m[i] = next.m;
    v[i] = next.v;
    direction[i] = next.direction;
  }
  double w2 = 0, r2 = 0;
#pragma omp simd reduction(+ : w2, r2)
  for (int64_t i = 0; i < n; ++i) {
    w2 += static_cast<double>(weight[i]) * static_cast<double>(weight[i]);
    r2 += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
  }
  *weight_squares = w2;
  *direction_squares = r2;
}

void apply(float rate, const float* direction, float* weight, RoundedCopy copy, int64_t n) {
  with_copy(copy, n, [=](int64_t begin, int64_t end, auto* rounded) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float w = weight[i] - rate * direction[i];
      weight[i] = w;
      write_copy(rounded, i - begin, w);
    }
  });
}

}  // namespace

void add_optimizer_kernels(KernelTable& table) {
  table.optimizer = {adamw, sgd, lamb_direction, apply};
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
