// Scalar helpers of the oracle. T is float, double or std::complex<double>: with a tiny imaginary part h in
// one input, the imaginary part of the output divided by h is the derivative without cancellation
// (complex-step method), so every function here is analytic, and comparisons look at real parts.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace megalith::reference {

template <class T>
using Values = std::vector<T>;

inline double real_part(float x) {
  return x;
}
inline double real_part(double x) {
  return x;
}
inline double real_part(const std::complex<double>& x) {
  return x.real();
}

inline float error_function(float x) {
  return std::erf(x);
}
inline double error_function(double x) {
  return std::erf(x);
}
// First order in the imaginary part, which is exact for a step far below rounding.
inline std::complex<double> error_function(const std::complex<double>& x) {
  return {std::erf(x.real()), x.imag() * 1.1283791670955126 * std::exp(-x.real() * x.real())};
}

}  // namespace megalith::reference
