// bfloat16 and IEEE half precision as storage types; arithmetic happens in fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace megalith {

/// The upper half of an fp32 number; conversion from fp32 rounds to nearest, ties to even.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((word >> 16) | 0x40u);  // A NaN stays one, and quiet.
    } else {
      bits = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16; conversion from fp32 rounds to nearest even and overflows to infinity.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

}  // namespace megalith
