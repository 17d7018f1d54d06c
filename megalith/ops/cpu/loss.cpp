// Softmax and its logarithmic normaliser over one row of logits.
#include <type_traits>

#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/math.h"
#include "megalith/ops/cpu/shuffle.h"
#include "megalith/ops/cpu/vectors.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

/// e^x for gradients: as exact as their storage type.
template <class T>
MEGALITH_INLINE Vector gradient_exponential(Vector x) {
  if constexpr (std::is_same_v<T, BrainFloat>) return rough_power_of_two(x * 1.44269504088896341f);
  return exponential(x);
}

/// One pass: the sum is kept relative to the largest logit of the chunks so far and rescaled when a chunk
/// brings a larger one.
template <class T>
float log_sum_exp(const void* x_raw, int64_t n) {
  constexpr int64_t kChunk = 1024;
  const T* x = static_cast<const T*>(x_raw);
  float largest = -__builtin_inff();
  Vector sum = {};
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t whole = begin + smaller(n - begin, kChunk) / kLanes * kLanes;
    const int64_t end = smaller(n, begin + kChunk);
    Vector chunk_largest = Vector{} - __builtin_inff();
    for (int64_t j = begin; j < whole; j += kLanes)
      chunk_largest = larger_lanes(chunk_largest, load_vector(x + j));
    float most = largest_of_lanes(chunk_largest);
    for (int64_t j = whole; j < end; ++j) most = larger(most, load(x[j]));
    if (most > largest) {
      sum *= exponential(largest - most);
      largest = most;
    }
    for (int64_t j = begin; j < whole; j += kLanes) sum += exponential(load_vector(x + j) - largest);
    for (int64_t j = whole; j < end; ++j) sum[0] += exponential(load(x[j]) - largest);
  }
  return largest + __builtin_logf(sum_of_lanes(sum));
}

template <class T>
void softmax_gradient(void* x_raw, float log_sum, int64_t target, float weight, float softcap, int64_t n,
                      int64_t padded) {
  T* x = static_cast<T*>(x_raw);
  const float inverse_cap = softcap > 0 ? 1.0f / softcap : 0.0f;
  float at_target = 0;
  if (target >= 0) {
    const float logit = load(x[target]), ratio = logit * inverse_cap;
    at_target = (exponential(logit - log_sum) - 1.0f) * weight * (1.0f - ratio * ratio);
  }
  if (softcap > 0) {
    for_vectors(n, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
      const Vector logit = lanes.load(x + j), ratio = logit * inverse_cap;
      lanes.store(x + j, gradient_exponential<T>(logit - log_sum) * weight * (1.0f - ratio * ratio));
    });
  } else {
    for_vectors(n, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
      lanes.store(x + j, gradient_exponential<T>(lanes.load(x + j) - log_sum) * weight);
    });
  }
  if (target >= 0) x[target] = store<T>(at_target);
  for (int64_t j = n; j < padded; ++j) x[j] = store<T>(0.0f);
}

template <class T>
void add_typed(TypedKernels& kernels) {
  kernels.log_sum_exp = log_sum_exp<T>;
  kernels.softmax_gradient = softmax_gradient<T>;
}

}  // namespace

void add_loss_kernels(KernelTable& table) {
  add_typed<float>(table.typed[0]);
  add_typed<BrainFloat>(table.typed[1]);
  add_typed<HalfFloat>(table.typed[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
