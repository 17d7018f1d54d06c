// Elementary functions of fp32 that vectorise. Errors are bounds seen over the whole range by tests/ops.
#pragma once

#include <immintrin.h>

#include "megalith/ops/cpu/level.h"

namespace megalith::cpu::MEGALITH_LEVEL {

/// e^x with a relative error below 2e-7 (Cephes' expf). 0 below -87.33; infinity above 88.37; NaN stays NaN.
/// Real is float, or Vector with WordVector.
template <class Real, class Word>
MEGALITH_INLINE Real exponential_of(Real x) {
  const Real round = Real{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer held in the low bits
  const Real lowest = Real{} - 87.4f, highest = Real{} + 89.0f;
  const Real clamped_low = x < lowest ? lowest : x;
  const Real clamped = clamped_low > highest ? highest : clamped_low;
  const Real shifted = clamped * 1.44269504088896341f + round;
  const Real n = shifted - round;
  Real r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Real p = Real{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Word exponent = (bit_cast<Word>(shifted) - bit_cast<Word>(round) + 127u) << 23;
  const Real result = p * bit_cast<Real>(exponent);
  return x < (Real{} - 87.33f) ? Real{} : result;
}
MEGALITH_INLINE float exponential(float x) {
  return exponential_of<float, uint32_t>(x);
}
#ifdef __AVX512F__
/// The same steps in instructions that round to whole numbers, multiply by powers of two and let NaN through.
MEGALITH_INLINE Vector exponential(Vector value) {
  const auto all = [](float x) MEGALITH_INLINE_LAMBDA { return _mm512_set1_ps(x); };
  const __m512 x = bit_cast<__m512>(value);
  const __m512 clamped = _mm512_min_ps(all(89.0f), _mm512_max_ps(all(-87.4f), x));
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, all(1.44269504088896341f)), kNearest);
  __m512 r = _mm512_fnmadd_ps(n, all(0.693359375f), clamped);
  r = _mm512_fnmadd_ps(n, all(-2.12194440e-4f), r);
  __m512 p = all(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, all(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, all(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, all(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, all(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, all(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), all(1.0f));
  const __mmask16 large_enough = _mm512_cmp_ps_mask(x, all(-87.33f), _CMP_NLT_UQ);
  return bit_cast<Vector>(_mm512_maskz_scalef_ps(large_enough, p, n));
}
#else
MEGALITH_INLINE Vector exponential(Vector x) {
  return exponential_of<Vector, WordVector>(x);
}
#endif

/// 2^x for x <= 126, with a relative error below 3e-6 (a minimax polynomial):
/// for results that bf16 will hold, whose own rounding is a thousand times that. Subnormal or 0
/// below -126; NaN stays NaN.
MEGALITH_INLINE Vector rough_power_of_two(Vector x) {
#ifdef __AVX512F__
  const auto all = [](float c) MEGALITH_INLINE_LAMBDA { return _mm512_set1_ps(c); };
  const __m512 clamped = _mm512_max_ps(all(-160.0f), bit_cast<__m512>(x));
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512 n = _mm512_roundscale_ps(clamped, kNearest), r = _mm512_sub_ps(clamped, n);
  __m512 p = all(9.5701019112e-03f);
  p = _mm512_fmadd_ps(p, r, all(5.5917860319e-02f));
  p = _mm512_fmadd_ps(p, r, all(2.4024744828e-01f));
  p = _mm512_fmadd_ps(p, r, all(6.9312181474e-01f));
  p = _mm512_fmadd_ps(p, r, all(9.9999926145e-01f));
  return bit_cast<Vector>(_mm512_scalef_ps(p, n));
#else
  return exponential(x * 0.69314718055994531f);
#endif
}

/// 1 / (1 + e^-x), relative error below 4e-7 wherever the result is a normal number.
MEGALITH_INLINE Vector logistic(Vector x) {
  return 1.0f / (1.0f + exponential(-x));
}

/// The same with a relative error below 5e-6, for results that bf16 will hold. 0 below -87.33.
MEGALITH_INLINE Vector rough_logistic(Vector x) {
#ifdef __AVX512F__
  const __m512 exponent = bit_cast<__m512>(x * -1.44269504088896341f);
  const __m512 most = _mm512_set1_ps(126.0f);
  const __m512 bounded = _mm512_min_ps(most, exponent);  // NaN passes
  const Vector divisor = 1.0f + rough_power_of_two(bit_cast<Vector>(bounded));
  const Vector near = bit_cast<Vector>(_mm512_rcp14_ps(bit_cast<__m512>(divisor)));
  const __m512 better = bit_cast<__m512>(2.0f - divisor * near);  // a step of Newton's
  const __mmask16 normal = _mm512_cmp_ps_mask(exponent, most, _CMP_NGE_UQ);
  return bit_cast<Vector>(_mm512_maskz_mul_ps(normal, bit_cast<__m512>(near), better));
#else
  return logistic(x);
#endif
}

/// Relative error below 4e-7 (Cephes' tanhf): an odd polynomial near zero, where 1 - 2 / (e^2x + 1) cancels.
MEGALITH_INLINE Vector hyperbolic_tangent(Vector x) {
  const Vector magnitude = x < 0 ? -x : x;
  const Vector z = x * x;
  Vector p = Vector{} - 5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const Vector near = p * z * x + x;
  const Vector far = 1.0f - 2.0f / (exponential(2.0f * magnitude) + 1.0f);
  return magnitude < 0.625f ? near : (x < 0 ? -far : far);
}

/// The standard normal distribution function (1 + erf(x / sqrt 2)) / 2 by Hastings' form of erfc (Numerical
/// Recipes' erfcc): relative error below 3e-6 for |x| <= 5, absolute error below 3e-7 everywhere.
MEGALITH_INLINE Vector normal_distribution(Vector x) {
  const Vector z = (x < 0 ? -x : x) * 0.70710678118654752f;
  const Vector t = 1.0f / (1.0f + 0.5f * z);
  Vector p = Vector{} + 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  const Vector tail = 0.5f * t * exponential(p - z * z);
  return x < 0 ? tail : 1.0f - tail;
}

/// The standard normal density.
MEGALITH_INLINE Vector normal_density(Vector x) {
  return 0.39894228040143268f * exponential(-0.5f * x * x);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
