// LayerNorm (centred) and RMSNorm (not centred), row by row, statistics in fp32.
#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/vectors.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

template <class T>
void norm_forward(bool centred, const void* x_raw, const void* weight_raw, const void* bias_raw,
                  float epsilon, void* y_raw, float* means, float* rstds, int64_t rows, int64_t columns) {
  const T *weight = static_cast<const T*>(weight_raw), *bias = static_cast<const T*>(bias_raw);
  const float inverse = 1.0f / static_cast<float>(columns);
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = static_cast<const T*>(x_raw) + r * columns;
    T* y = static_cast<T*>(y_raw) + r * columns;
    float mean = 0;
    if (centred) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < columns; ++j) sum += load(x[j]);
      mean = sum * inverse;
    }
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < columns; ++j) {
      const float d = load(x[j]) - mean;
      squares += d * d;
    }
    const float rstd = 1.0f / __builtin_sqrtf(squares * inverse + epsilon);
    if (means != nullptr) means[r] = mean;
    rstds[r] = rstd;
    if (bias != nullptr) {
      for_vectors(columns, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
        const Vector normalised = (lanes.load(x + j) - mean) * rstd;
        lanes.store(y + j, normalised * lanes.load(weight + j) + lanes.load(bias + j));
      });
    } else {
      for_vectors(columns, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
        lanes.store(y + j, (lanes.load(x + j) - mean) * rstd * lanes.load(weight + j));
      });
    }
  }
}

/// With x^ = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - x^ mean(g x^)), without the second
/// term for RMSNorm; dweight = sum dy x^; dbias = sum dy.
template <class T>
void norm_backward(bool centred, const void* dy_raw, const void* x_raw, const void* weight_raw,
                   const float* means, const float* rstds, void* dx_raw, float* dweight, float* dbias,
                   int64_t rows, int64_t columns) {
  const T* weight = static_cast<const T*>(weight_raw);
  const float inverse = 1.0f / static_cast<float>(columns);
  for (int64_t r = 0; r < rows; ++r) {
    const T* dy = static_cast<const T*>(dy_raw) + r * columns;
    const T* x = static_cast<const T*>(x_raw) + r * columns;
    T* dx = static_cast<T*>(dx_raw) + r * columns;
    const float mean = centred ? means[r] : 0.0f, rstd = rstds[r];
    float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (int64_t j = 0; j < columns; ++j) {
      const float d = load(dy[j]), normalised = (load(x[j]) - mean) * rstd;
      const float g = d * load(weight[j]);
      sum += g;
      product += g * normalised;
      dweight[j] += d * normalised;
    }
    const float mean_g = centred ? sum * inverse : 0.0f, mean_product = product * inverse;
    for_vectors(columns, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
      const Vector normalised = (lanes.load(x + j) - mean) * rstd;
      const Vector g = lanes.load(dy + j) * lanes.load(weight + j);
      lanes.store(dx + j, lanes.load(dx + j) + rstd * (g - mean_g - normalised * mean_product));
    });
    if (dbias != nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) dbias[j] += load(dy[j]);
    }
  }
}

template <class T>
void add_typed(TypedKernels& kernels) {
  kernels.norm_forward = norm_forward<T>;
  kernels.norm_backward = norm_backward<T>;
}

}  // namespace

void add_norm_kernels(KernelTable& table) {
  add_typed<float>(table.typed[0]);
  add_typed<BrainFloat>(table.typed[1]);
  add_typed<HalfFloat>(table.typed[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
