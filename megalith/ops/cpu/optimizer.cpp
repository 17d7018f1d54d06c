// Fused optimizer loops over flat fp32 buffers; each element is read and written once.
#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/storage.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

/// Stands for "no copy".
struct Nothing {};

template <class T>
MEGALITH_INLINE void write_copy(void* copy, int64_t i, float value) {
  static_cast<T*>(copy)[i] = store<T>(value);
}
template <>
MEGALITH_INLINE void write_copy<Nothing>(void*, int64_t, float) {}

/// Calls `loop` with the storage type of the copy.
template <class Loop>
MEGALITH_INLINE void with_copy(CopyKind kind, Loop loop) {
  if (kind == CopyKind::none) return loop(Nothing{});
  if (kind == CopyKind::bf16) return loop(BrainFloat{});
  loop(HalfFloat{});
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

void adamw(const AdamWStep& step, float* weight, float* m, float* v, const float* gradient, void* copy,
           CopyKind kind, int64_t n) {
  const AdamWStep s = step;
  const float inverse1 = 1.0f / s.bias_correction1, inverse2 = 1.0f / s.bias_correction2;
  with_copy(kind, [=](auto tag) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const Moments next =
          advance(s, inverse1, inverse2, m[i], v[i], gradient[i] * s.gradient_scale, weight[i]);
      const float w = weight[i] - s.learning_rate * next.direction;
      m[i] = next.m;
      v[i] = next.v;
      weight[i] = w;
      write_copy<decltype(tag)>(copy, i, w);
    }
  });
}

void sgd(float learning_rate, float momentum, float weight_decay, float gradient_scale, float* weight,
         float* u, const float* gradient, void* copy, CopyKind kind, int64_t n) {
  with_copy(kind, [=](auto tag) {
    if (u == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float g = gradient[i] * gradient_scale + weight_decay * weight[i];
        const float w = weight[i] - learning_rate * g;
        weight[i] = w;
        write_copy<decltype(tag)>(copy, i, w);
      }
      return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float g = gradient[i] * gradient_scale + weight_decay * weight[i];
      const float next = momentum * u[i] + g;
      const float w = weight[i] - learning_rate * next;
      u[i] = next;
      weight[i] = w;
      write_copy<decltype(tag)>(copy, i, w);
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

void apply(float rate, const float* direction, float* weight, void* copy, CopyKind kind, int64_t n) {
  with_copy(kind, [=](auto tag) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float w = weight[i] - rate * direction[i];
      weight[i] = w;
      write_copy<decltype(tag)>(copy, i, w);
    }
  });
}

}  // namespace

void add_optimizer_kernels(KernelTable& table) {
  table.optimizer = {adamw, sgd, lamb_direction, apply};
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
