// Activations and their derivatives.
#include <type_traits>

#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/math.h"
#include "megalith/ops/cpu/vectors.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

struct Slope {
  Vector value, derivative;
};

/// As exact as results of type T.
template <class T>
MEGALITH_INLINE Vector logistic_of(Vector x) {
  if constexpr (std::is_same_v<T, BrainFloat>) return rough_logistic(x);
  return logistic(x);
}

/// 0.5 x (1 + tanh u) = x logistic(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
struct GeluTanh {
  static constexpr float kRoot = 0.79788456080286536f, kCubic = 0.044715f;
  MEGALITH_INLINE static Vector value(Vector x) {
    return x * logistic_of<T>(2.0f * kRoot * (x + kCubic * x * x * x));
  }
  MEGALITH_INLINE static Slope slope(Vector x) {
    const Vector s = logistic_of<T>(2.0f * kRoot * (x + kCubic * x * x * x));
    const Vector twice_du = 2.0f * kRoot * (1.0f + 3.0f * kCubic * x * x);
    return {x * s, s + x * s * (1.0f - s) * twice_du};
  }
};

struct GeluErf {
  MEGALITH_INLINE static Vector value(Vector x) { return x * normal_distribution(x); }
  MEGALITH_INLINE static Slope slope(Vector x) {
    const Vector p = normal_distribution(x);
    return {x * p, p + x * normal_density(x)};
  }
};

struct Relu {
  MEGALITH_INLINE static Vector value(Vector x) { return x > 0 ? x : Vector{}; }
  MEGALITH_INLINE static Slope slope(Vector x) { return {value(x), x > 0 ? Vector{} + 1.0f : Vector{}}; }
};

template <class T>
struct Silu {
  MEGALITH_INLINE static Vector value(Vector x) { return x * logistic_of<T>(x); }
  MEGALITH_INLINE static Slope slope(Vector x) {
    const Vector s = logistic_of<T>(x);
    return {x * s, s + x * s * (1.0f - s)};
  }
};

template <class T, class F>
void plain_forward(const T* x, T* y, int64_t n) {
  for_vectors(n, [&](auto lanes, int64_t i)
                     MEGALITH_INLINE_LAMBDA { lanes.store(y + i, F::value(lanes.load(x + i))); });
}

template <class T, class F>
void plain_backward(const T* x, const T* dy, T* dx, T* y, int64_t n) {
  for_vectors(n, [&](auto lanes, int64_t i) MEGALITH_INLINE_LAMBDA {
    const Slope slope = F::slope(lanes.load(x + i));
    lanes.store(dx + i, lanes.load(dy + i) * slope.derivative);
    if (y != nullptr) lanes.store(y + i, slope.value);
  });
}

template <class T, class F>
void gated_forward(const T* x, T* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *gate = x + r * 2 * columns, *up = gate + columns;
    T* out = y + r * columns;
    for_vectors(columns, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
      lanes.store(out + j, F::value(lanes.load(gate + j)) * lanes.load(up + j));
    });
  }
}

template <class T, class F>
void gated_backward(const T* x, const T* dy, T* dx, T* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *gate = x + r * 2 * columns, *up = gate + columns, *d = dy + r * columns;
    T *dgate = dx + r * 2 * columns, *dup = dgate + columns;
    for_vectors(columns, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
      const Slope slope = F::slope(lanes.load(gate + j));
      const Vector upward = lanes.load(up + j), gradient = lanes.load(d + j);
      lanes.store(dgate + j, gradient * upward * slope.derivative);
      lanes.store(dup + j, gradient * slope.value);
      if (y != nullptr) lanes.store(y + r * columns + j, slope.value * upward);
    });
  }
}

/// The order of megalith::Activation.
template <class T>
void activation_forward(int activation, const void* x_raw, void* y_raw, int64_t rows, int64_t columns) {
  const T* x = static_cast<const T*>(x_raw);
  T* y = static_cast<T*>(y_raw);
  switch (activation) {
    case 0:
      return plain_forward<T, GeluTanh<T>>(x, y, rows * columns);
    case 1:
      return plain_forward<T, GeluErf>(x, y, rows * columns);
    case 2:
      return plain_forward<T, Relu>(x, y, rows * columns);
    case 3:
      return plain_forward<T, Silu<T>>(x, y, rows * columns);
    case 4:
      return gated_forward<T, Silu<T>>(x, y, rows, columns);
    case 5:
      return gated_forward<T, GeluTanh<T>>(x, y, rows, columns);
    default:
      return gated_forward<T, GeluErf>(x, y, rows, columns);
  }
}

template <class T>
void activation_backward(int activation, const void* x_raw, const void* dy_raw, void* dx_raw, void* y_raw,
                         int64_t rows, int64_t columns) {
  const T *x = static_cast<const T*>(x_raw), *dy = static_cast<const T*>(dy_raw);
  T *dx = static_cast<T*>(dx_raw), *y = static_cast<T*>(y_raw);
  switch (activation) {
    case 0:
      return plain_backward<T, GeluTanh<T>>(x, dy, dx, y, rows * columns);
    case 1:
      return plain_backward<T, GeluErf>(x, dy, dx, y, rows * columns);
    case 2:
      return plain_backward<T, Relu>(x, dy, dx, y, rows * columns);
    case 3:
      return plain_backward<T, Silu<T>>(x, dy, dx, y, rows * columns);
    case 4:
      return gated_backward<T, Silu<T>>(x, dy, dx, y, rows, columns);
    case 5:
      return gated_backward<T, GeluTanh<T>>(x, dy, dx, y, rows, columns);
    default:
      return gated_backward<T, GeluErf>(x, dy, dx, y, rows, columns);
  }
}

template <class T>
void add_typed(TypedKernels& kernels) {
  kernels.activation_forward = activation_forward<T>;
  kernels.activation_backward = activation_backward<T>;
}

}  // namespace

void add_activation_kernels(KernelTable& table) {
  add_typed<float>(table.typed[0]);
  add_typed<BrainFloat>(table.typed[1]);
  add_typed<HalfFloat>(table.typed[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
