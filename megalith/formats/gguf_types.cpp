#include "megalith/formats/gguf_types.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "megalith/base/error.h"
#include "megalith/base/float16.h"

namespace megalith {

namespace {

constexpr int kSuper = 256;  // elements of a block of the K types

struct TypeEntry {
  GgufType type;
  GgufBlock block;
};

constexpr TypeEntry kTypes[] = {
    {GgufType::f32, {"F32", 1, 4}},
    {GgufType::f16, {"F16", 1, 2}},
    {GgufType::q4_0, {"Q4_0", 32, 18}},
    {GgufType::q4_1, {"Q4_1", 32, 20}},
    {GgufType::q5_0, {"Q5_0", 32, 22}},
    {GgufType::q5_1, {"Q5_1", 32, 24}},
    {GgufType::q8_0, {"Q8_0", 32, 34}},
    {GgufType::q8_1, {"Q8_1", 32, 40}},
    {GgufType::q2_k, {"Q2_K", kSuper, 84}},
    {GgufType::q3_k, {"Q3_K", kSuper, 110}},
    {GgufType::q4_k, {"Q4_K", kSuper, 144}},
    {GgufType::q5_k, {"Q5_K", kSuper, 176}},
    {GgufType::q6_k, {"Q6_K", kSuper, 210}},
    {GgufType::q8_k, {"Q8_K", kSuper, 292}},
    {GgufType::iq2_xxs, {"IQ2_XXS", kSuper, 66}},
    {GgufType::iq2_xs, {"IQ2_XS", kSuper, 74}},
    {GgufType::iq3_xxs, {"IQ3_XXS", kSuper, 98}},
    {GgufType::iq1_s, {"IQ1_S", kSuper, 50}},
    {GgufType::iq4_nl, {"IQ4_NL", 32, 18}},
    {GgufType::iq3_s, {"IQ3_S", kSuper, 110}},
    {GgufType::iq2_s, {"IQ2_S", kSuper, 82}},
    {GgufType::iq4_xs, {"IQ4_XS", kSuper, 136}},
    {GgufType::i8, {"I8", 1, 1}},
    {GgufType::i16, {"I16", 1, 2}},
    {GgufType::i32, {"I32", 1, 4}},
    {GgufType::i64, {"I64", 1, 8}},
    {GgufType::f64, {"F64", 1, 8}},
    {GgufType::iq1_m, {"IQ1_M", kSuper, 56}},
    {GgufType::bf16, {"BF16", 1, 2}},
    {GgufType::tq1_0, {"TQ1_0", kSuper, 54}},
    {GgufType::tq2_0, {"TQ2_0", kSuper, 66}},
    {GgufType::mxfp4, {"MXFP4", 32, 17}},
};

uint16_t read16(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}
float read_half(const uint8_t* at) {
  Float16 value;
  value.bits = read16(at);
  return static_cast<float>(value);
}
void write_half(float value, uint8_t* at) {
  const uint16_t bits = Float16(value).bits;
  std::memcpy(at, &bits, 2);
}

// Nibbles of 16 bytes: the low ones are elements 0..15, the high ones 16..31.
int low(uint8_t byte) {
  return byte & 15;
}
int high(uint8_t byte) {
  return byte >> 4;
}

void q4_0(const uint8_t* b, float* y) {
  const float d = read_half(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(low(b[2 + j]) - 8);
    y[j + 16] = d * static_cast<float>(high(b[2 + j]) - 8);
  }
}

void q4_1(const uint8_t* b, float* y) {
  const float d = read_half(b), m = read_half(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(low(b[4 + j])) + m;
    y[j + 16] = d * static_cast<float>(high(b[4 + j])) + m;
  }
}

// The fifth bits of 32 elements follow the scales.
int fifth_bit(const uint8_t* bits, int element) {
  return (bits[element / 8] >> (element % 8) & 1) << 4;
}

void q5_0(const uint8_t* b, float* y) {
  const float d = read_half(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((low(b[6 + j]) | fifth_bit(b + 2, j)) - 16);
    y[j + 16] = d * static_cast<float>((high(b[6 + j]) | fifth_bit(b + 2, j + 16)) - 16);
  }
}

void q5_1(const uint8_t* b, float* y) {
  const float d = read_half(b), m = read_half(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(low(b[8 + j]) | fifth_bit(b + 4, j)) + m;
    y[j + 16] = d * static_cast<float>(high(b[8 + j]) | fifth_bit(b + 4, j + 16)) + m;
  }
}

void q8_0(const uint8_t* b, float* y) {
  const float d = read_half(b);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

// 16 groups of 16 elements; two runs of 32 bytes, four elements of 2 bits a byte, 32 apart.
void q2_k(const uint8_t* b, float* y) {
  const uint8_t *scales = b, *bits = b + 16;
  const float d = read_half(b + 80), dmin = read_half(b + 82);
  for (int e = 0; e < kSuper; ++e) {
    const int shift = e % 128 / 32 * 2, q = bits[e / 128 * 32 + e % 32] >> shift & 3;
    const uint8_t scale = scales[e / 16];
    y[e] =
        d * static_cast<float>(low(scale)) * static_cast<float>(q) - dmin * static_cast<float>(high(scale));
  }
}

// As Q2_K with a third bit from a mask that says where nothing is subtracted, and 6-bit scales.
void q3_k(const uint8_t* b, float* y) {
  const uint8_t *mask = b, *bits = b + 32, *packed = b + 96;
  const float d = read_half(b + 108);
  float scales[16];
  for (int g = 0; g < 16; ++g) {
    const int lower = g < 8 ? low(packed[g]) : high(packed[g - 8]);
    const int upper = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    scales[g] = d * static_cast<float>((lower | upper << 4) - 32);
  }
  for (int e = 0; e < kSuper; ++e) {
    const int q = bits[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
    const int offset = (mask[e % 32] >> (e / 32) & 1) != 0 ? 0 : 4;
    y[e] = scales[e / 16] * static_cast<float>(q - offset);
  }
}

// Eight 6-bit scales and minima in twelve bytes.
struct GroupScales {
  float scale[8], minimum[8];

  GroupScales(const uint8_t* packed, float d, float dmin) {
    for (int g = 0; g < 8; ++g) {
      const int j = g % 4;
      const int s = g < 4 ? packed[j] & 63 : low(packed[8 + j]) | (packed[j] >> 2 & 0x30);
      const int m = g < 4 ? packed[4 + j] & 63 : high(packed[8 + j]) | (packed[4 + j] >> 2 & 0x30);
      scale[g] = d * static_cast<float>(s);
      minimum[g] = dmin * static_cast<float>(m);
    }
  }
};

int nibble_of(const uint8_t* bits, int e) {
  const uint8_t byte = bits[e / 64 * 32 + e % 32];
  return e % 64 < 32 ? low(byte) : high(byte);
}

void q4_k(const uint8_t* b, float* y) {
  const GroupScales groups(b + 4, read_half(b), read_half(b + 2));
  for (int e = 0; e < kSuper; ++e) {
    y[e] = groups.scale[e / 32] * static_cast<float>(nibble_of(b + 16, e)) - groups.minimum[e / 32];
  }
}

void q5_k(const uint8_t* b, float* y) {
  const GroupScales groups(b + 4, read_half(b), read_half(b + 2));
  for (int e = 0; e < kSuper; ++e) {
    const int fifth = (b[16 + e % 32] >> (e / 32) & 1) << 4;
    y[e] = groups.scale[e / 32] * static_cast<float>(nibble_of(b + 48, e) | fifth) - groups.minimum[e / 32];
  }
}

// Two halves of 128 elements: 64 bytes of low nibbles, 32 bytes of upper bit pairs.
void q6_k(const uint8_t* b, float* y) {
  const uint8_t *lower = b, *upper = b + 128, *scales = b + 192;
  const float d = read_half(b + 208);
  for (int e = 0; e < kSuper; ++e) {
    const int half = e / 128, within = e % 128;
    const uint8_t byte = lower[half * 64 + within % 64];
    const int l = within < 64 ? low(byte) : high(byte);
    const int h = upper[half * 32 + within % 32] >> (within / 32 * 2) & 3;
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[e / 16]));
    y[e] = scale * static_cast<float>((l | h << 4) - 32);
  }
}

constexpr float kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void iq4_nl(const uint8_t* b, float* y) {
  const float d = read_half(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * kNonlinear[low(b[2 + j])];
    y[j + 16] = d * kNonlinear[high(b[2 + j])];
  }
}

void iq4_xs(const uint8_t* b, float* y) {
  const float d = read_half(b);
  const uint16_t upper = read16(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int lower = g % 2 == 0 ? low(b[4 + g / 2]) : high(b[4 + g / 2]);
    const float scale = d * static_cast<float>((lower | (upper >> (2 * g) & 3) << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      const uint8_t byte = b[8 + 16 * g + j];
      y[32 * g + j] = scale * kNonlinear[low(byte)];
      y[32 * g + 16 + j] = scale * kNonlinear[high(byte)];
    }
  }
}

// E2M1 numbers, doubled, times half a power of two (OCP Microscaling Formats 1.0).
void mxfp4(const uint8_t* b, float* y) {
  constexpr float kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = b[0];
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  float d;
  std::memcpy(&d, &bits, 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * kValues[low(b[1 + j])];
    y[j + 16] = d * kValues[high(b[1 + j])];
  }
}

void f32(const uint8_t* b, float* y) {
  std::memcpy(y, b, 4);
}
void f16(const uint8_t* b, float* y) {
  *y = read_half(b);
}
void bf16(const uint8_t* b, float* y) {
  BFloat16 value;
  value.bits = read16(b);
  *y = static_cast<float>(value);
}
void f64(const uint8_t* b, float* y) {
  double value;
  std::memcpy(&value, b, 8);
  *y = static_cast<float>(value);
}

using DequantizeBlock = void (*)(const uint8_t*, float*);

DequantizeBlock find_dequantizer(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return f32;
    case GgufType::f16:
      return f16;
    case GgufType::bf16:
      return bf16;
    case GgufType::f64:
      return f64;
    case GgufType::q4_0:
      return q4_0;
    case GgufType::q4_1:
      return q4_1;
    case GgufType::q5_0:
      return q5_0;
    case GgufType::q5_1:
      return q5_1;
    case GgufType::q8_0:
      return q8_0;
    case GgufType::q2_k:
      return q2_k;
    case GgufType::q3_k:
      return q3_k;
    case GgufType::q4_k:
      return q4_k;
    case GgufType::q5_k:
      return q5_k;
    case GgufType::q6_k:
      return q6_k;
    case GgufType::iq4_nl:
      return iq4_nl;
    case GgufType::iq4_xs:
      return iq4_xs;
    case GgufType::mxfp4:
      return mxfp4;
    default:
      return nullptr;
  }
}

// 0 for a scale of 0 or so small that its reciprocal overflows: fp16 holds it as 0 anyway.
float reciprocal(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

void quantize_q8_0(const float* x, uint8_t* b) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(x[j]));
  const float d = largest / 127.0f, inverse = reciprocal(d);
  write_half(d, b);
  for (int j = 0; j < 32; ++j)
    b[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[j] * inverse)));
}

// The scale has the sign that gives the element of the largest magnitude the value -8.
void quantize_q4_0(const float* x, uint8_t* b) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(x[j]) > std::fabs(largest)) largest = x[j];
  }
  const float d = largest / -8.0f, inverse = reciprocal(d);
  write_half(d, b);
  const auto level = [&](float value) { return std::min(15, static_cast<int>(value * inverse + 8.5f)); };
  for (int j = 0; j < 16; ++j) b[2 + j] = static_cast<uint8_t>(level(x[j]) | level(x[j + 16]) << 4);
}

}  // namespace

const GgufBlock* find_gguf_block(uint32_t type) {
  for (const TypeEntry& entry : kTypes) {
    if (static_cast<uint32_t>(entry.type) == type) return &entry.block;
  }
  return nullptr;
}

const GgufBlock& gguf_block(GgufType type) {
  const GgufBlock* block = find_gguf_block(static_cast<uint32_t>(type));
  check(block != nullptr, "GGUF type {} is unknown", static_cast<uint32_t>(type));
  return *block;
}

bool can_dequantize(GgufType type) {
  return find_dequantizer(type) != nullptr;
}

void dequantize(GgufType type, const void* blocks, int64_t n, float* out) {
  const DequantizeBlock block_of = find_dequantizer(type);
  const GgufBlock& block = gguf_block(type);
  check_input(block_of != nullptr, "GGUF type {} cannot be read", block.name);
  check(n % block.elements == 0, "{} elements are not whole blocks of {}", n, block.name);
  const uint8_t* from = static_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < n; i += block.elements, from += block.bytes) block_of(from, out + i);
}

float largest_quantizable(GgufType type) {
  constexpr float kLargestHalf = 65504;
  switch (type) {
    case GgufType::f16:
      return kLargestHalf;
    case GgufType::q8_0:
      return kLargestHalf * 127;
    case GgufType::q4_0:
      return kLargestHalf * 8;
    default:
      return std::numeric_limits<float>::max();
  }
}

bool can_quantize(GgufType type) {
  return type == GgufType::f32 || type == GgufType::f16 || type == GgufType::bf16 || type == GgufType::q8_0 ||
         type == GgufType::q4_0;
}

void quantize(GgufType type, const float* x, int64_t n, void* blocks) {
  const GgufBlock& block = gguf_block(type);
  check_input(can_quantize(type), "GGUF type {} cannot be written; F32, F16, BF16, Q8_0 and Q4_0 can",
              block.name);
  check(n % block.elements == 0, "{} elements are not whole blocks of {}", n, block.name);
  uint8_t* to = static_cast<uint8_t*>(blocks);
  for (int64_t i = 0; i < n; i += block.elements, to += block.bytes) {
    switch (type) {
      case GgufType::f32:
        std::memcpy(to, x + i, 4);
        break;
      case GgufType::f16:
        write_half(x[i], to);
        break;
      case GgufType::bf16: {
        const uint16_t bits = BFloat16(x[i]).bits;
        std::memcpy(to, &bits, 2);
        break;
      }
      case GgufType::q8_0:
        quantize_q8_0(x + i, to);
        break;
      default:
        quantize_q4_0(x + i, to);
    }
  }
}

}  // namespace megalith
