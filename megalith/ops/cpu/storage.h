// Loads and stores of the storage types as fp32, written so that loops over them vectorise.
#pragma once

#include "megalith/ops/cpu/level.h"

namespace megalith::cpu::MEGALITH_LEVEL {

struct BrainFloat {
  uint16_t bits;
};
struct HalfFloat {
  uint16_t bits;
};

MEGALITH_INLINE float load(float x) {
  return x;
}
MEGALITH_INLINE float load(BrainFloat x) {
  return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
/// Exact for every value; subnormals are normalised by a subtraction in fp32, so that no subnormal operand
/// slows the processor down.
MEGALITH_INLINE float load(HalfFloat x) {
  const uint32_t exponent_mask = 0x7c00u << 13;
  uint32_t word = (x.bits & 0x7fffu) << 13;
  const uint32_t exponent = word & exponent_mask;
  word += (127u - 15u) << 23;
  word += exponent == exponent_mask ? (128u - 16u) << 23 : 0u;  // infinity and NaN
  const float subnormal = bit_cast<float>(word + (1u << 23)) - bit_cast<float>(113u << 23);
  word = exponent == 0 ? bit_cast<uint32_t>(subnormal) : word;
  return bit_cast<float>(word | (static_cast<uint32_t>(x.bits & 0x8000u) << 16));
}

template <class T>
MEGALITH_INLINE T store(float x);

template <>
MEGALITH_INLINE float store<float>(float x) {
  return x;
}
/// Nearest, ties to even; a NaN stays one, and quiet.
template <>
MEGALITH_INLINE BrainFloat store<BrainFloat>(float x) {
  const uint32_t word = bit_cast<uint32_t>(x);
  const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const uint32_t nan = (word >> 16) | 0x40u;
  return {static_cast<uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}
/// Nearest, ties to even; overflows to infinity.
template <>
MEGALITH_INLINE HalfFloat store<HalfFloat>(float x) {
  const uint32_t word = bit_cast<uint32_t>(x);
  const uint32_t sign = (word >> 16) & 0x8000u;
  const uint32_t magnitude = word & 0x7fffffffu;
  // Normal: move the exponent's bias and round the 13 lowest bits away.
  const uint32_t normal =
      (magnitude + (static_cast<uint32_t>(15 - 127) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal: an fp32 addition aligns the mantissa at the half's lowest bit and rounds it.
  const uint32_t magic = (127u - 15u + 23u - 10u + 1u) << 23;
  const uint32_t tiny = bit_cast<uint32_t>(bit_cast<float>(magnitude) + bit_cast<float>(magic)) - magic;
  uint32_t half = magnitude < (113u << 23) ? tiny : normal;
  half = magnitude >= (143u << 23) ? 0x7c00u : half;                              // overflow and infinity
  half = magnitude > (255u << 23) ? (magnitude >> 13 & 0x3ffu) | 0x7e00u : half;  // NaN
  return {static_cast<uint16_t>(half | sign)};
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
