// The two 8-bit floating formats as storage types (Micikevicius et al. 2022; OCP OFP8).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace megalith {

/// 1 sign, 4 exponent (bias 7) and 3 fraction bits; no infinities, NaN is S.1111.111.
struct Float8E4M3 {
  uint8_t bits = 0;

  explicit operator float() const {
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(bits & 0x80 ? 0xffc00000u : 0x7fc00000u);
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                          : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
  }
};

/// 1 sign, 5 exponent (bias 15) and 2 fraction bits, as IEEE formats have them.
struct Float8E5M2 {
  uint8_t bits = 0;

  explicit operator float() const {
    const int exponent = bits >> 2 & 31, fraction = bits & 3;
    if (exponent == 31) {
      const uint32_t sign = bits & 0x80 ? 0x80000000u : 0;
      return std::bit_cast<float>(sign | (fraction == 0 ? 0x7f800000u : 0x7fc00000u));
    }
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -16)
                                          : std::ldexp(static_cast<float>(4 + fraction), exponent - 17);
    return bits & 0x80 ? -magnitude : magnitude;
  }
};

}  // namespace megalith
