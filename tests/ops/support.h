// What the tests of operations share: contexts, random tensors, comparison with doubles.
//
// Tolerances are error bounds: u is the rounding error of the type (half a unit in the last place), a sum of
// n products in fp32 is off by at most n * 2^-24 * sum |a b|.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "megalith/base/random.h"
#include "megalith/reference/attention.h"
#include "megalith/reference/layers.h"
#include "megalith/tensor/exec.h"

namespace megalith::test {

using Doubles = std::vector<double>;

inline constexpr double kFloatError = 0x1.0p-24;

inline double rounding_error(DType dtype) {
  return dtype == DType::f32 ? 0x1.0p-24 : dtype == DType::bf16 ? 0x1.0p-8 : 0x1.0p-11;
}

inline const std::vector<DType>& training_types() {
  static const std::vector<DType> types = {DType::f32, DType::bf16, DType::f16};
  return types;
}

class OpTest : public ::testing::Test {
 protected:
  Arena arena{"test workspace", size_t{1} << 31};
  ExecContext context{arena};

  /// Runs `compute` on one and on two threads; the tensors it returns must be equal bit for bit, and nothing
  /// of the workspace may stay taken. Returns those of one thread.
  template <class Compute>
  std::vector<Tensor> on_any_threads(Compute&& compute) {
    context.threads = 1;
    std::vector<Tensor> one = compute();
    // Three threads on two cores come and go at different times, and take over each other's work.
    for (const int threads : {2, 3}) {
      context.threads = threads;
      const std::vector<Tensor> more = compute();
      EXPECT_EQ(arena.used(), 0u);
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_EQ(std::memcmp(one[i].view().raw(), more[i].view().raw(), one[i].view().bytes()), 0)
            << "result " << i << " depends on the number of threads: " << threads;
      }
    }
    context.threads = 1;
    return one;
  }
};

inline void set(const TensorView& x, int64_t i, double value) {
  dispatch_float(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    x.data<T>()[i] = T(static_cast<float>(value));
  });
}

inline double get(const TensorView& x, int64_t i) {
  return dispatch_float(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    return static_cast<double>(static_cast<float>(x.data<T>()[i]));
  });
}

inline Tensor random_tensor(DType dtype, const Shape& shape, uint64_t seed, double deviation = 1) {
  Tensor x(dtype, shape);
  const RandomStream stream(seed, RandomUse::initialization, 7);
  for (int64_t i = 0; i < x.view().elements(); ++i) {
    set(x, i, deviation * stream.normals(static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)]);
  }
  return x;
}

inline Tensor copy_of(const TensorView& x) {
  Tensor y(x.dtype(), x.shape());
  std::memcpy(y.view().raw(), x.raw(), x.bytes());
  return y;
}

inline Tensor integers(const std::vector<int>& values) {
  Tensor x(DType::i32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) x.data<int32_t>()[i] = values[i];
  return x;
}

inline Doubles doubles(const TensorView& x) {
  Doubles y(static_cast<size_t>(x.elements()));
  for (size_t i = 0; i < y.size(); ++i) y[i] = get(x, static_cast<int64_t>(i));
  return y;
}

inline Doubles magnitudes(Doubles x) {
  for (double& value : x) value = std::abs(value);
  return x;
}

inline double largest(const Doubles& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

/// |actual - expected| <= u |expected| + bound, element by element.
inline void expect_close(const TensorView& actual, const Doubles& expected, const Doubles& bound,
                         const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(actual.elements()), expected.size()) << what;
  const double rounding = rounding_error(actual.dtype());
  // Numbers below the smallest normal one are kept to its precision only.
  const double tiny = actual.dtype() == DType::f16 ? 0x1.0p-24 : 1e-38;
  int reported = 0;
  for (size_t i = 0; i < expected.size() && reported < 3; ++i) {
    const double value = get(actual, static_cast<int64_t>(i));
    const double allowed = 1.01 * rounding * std::abs(expected[i]) + bound[i] * (1 + rounding) + tiny;
    if (!(std::abs(value - expected[i]) <= allowed)) {
      ADD_FAILURE() << what << " [" << i << "]: " << value << ", expected " << expected[i] << " within "
                    << allowed;
      ++reported;
    }
  }
}

inline void expect_close(const TensorView& actual, const Doubles& expected, double bound,
                         const std::string& what) {
  expect_close(actual, expected, Doubles(expected.size(), bound), what);
}

inline bool same_bits(const TensorView& a, const TensorView& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace megalith::test
