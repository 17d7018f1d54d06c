#include <immintrin.h>

#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/float16.h"
#include "megalith/formats/gguf_types.h"

namespace megalith {

namespace {

constexpr int kSuper = 256;  // elements of a block of the K types

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

// 32 elements as bytes are turned into floats by vector instructions that every machine of ours has (AVX2);
// every product and every sum is rounded on its own, in the order of the formula.

int low(uint8_t byte) {
  return byte & 15;
}
int high(uint8_t byte) {
  return byte >> 4;
}

// Nibbles of 16 bytes: the low ones are elements 0..15, the high ones 16..31.
__m256i nibbles(const uint8_t* bytes) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), _mm256_set1_epi8(15));
}

// Some bits of each of 32 bytes.
__m256i field(const uint8_t* bytes, int shift, char mask) {
  const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  return _mm256_and_si256(_mm256_srl_epi16(all, _mm_cvtsi32_si128(shift)), _mm256_set1_epi8(mask));
}

// 16 where a bit of 32 is set.
__m256i fifth_bits(const uint8_t* bits) {
  int word;
  std::memcpy(&word, bits, 4);
  const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                           2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i bit = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), byte_of), bit_of);
  return _mm256_and_si256(_mm256_cmpeq_epi8(bit, bit_of), _mm256_set1_epi8(16));
}

// y[j] = of(q[j]) for 16 bytes, signed or not.
template <bool is_signed, class Function>
void to_floats(__m128i q, const Function& of, float* y) {
  const auto widen = [](__m128i bytes) {
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
  };
  _mm256_storeu_ps(y, of(widen(q)));
  _mm256_storeu_ps(y + 8, of(widen(_mm_srli_si128(q, 8))));
}
template <bool is_signed = false, class Function>
void to_floats(__m256i q, const Function& of, float* y) {
  to_floats<is_signed>(_mm256_castsi256_si128(q), of, y);
  to_floats<is_signed>(_mm256_extracti128_si256(q, 1), of, y + 16);
}

// d (q - offset).
auto scaled(float d, float offset) {
  return [d = _mm256_set1_ps(d), offset = _mm256_set1_ps(offset)](__m256 q) {
    return _mm256_mul_ps(d, _mm256_sub_ps(q, offset));
  };
}
// d q + m.
auto scaled_and_shifted(float d, float m) {
  return [d = _mm256_set1_ps(d), m = _mm256_set1_ps(m)](__m256 q) {
    return _mm256_add_ps(_mm256_mul_ps(d, q), m);
  };
}
// d q - m.
auto scaled_above(float d, float m) {
  return [d = _mm256_set1_ps(d), m = _mm256_set1_ps(m)](__m256 q) {
    return _mm256_sub_ps(_mm256_mul_ps(d, q), m);
  };
}
auto times(float d) {
  return [d = _mm256_set1_ps(d)](__m256 q) { return _mm256_mul_ps(d, q); };
}

void q4_0(const uint8_t* b, float* y) {
  to_floats(nibbles(b + 2), scaled(read_half(b), 8), y);
}

void q4_1(const uint8_t* b, float* y) {
  to_floats(nibbles(b + 4), scaled_and_shifted(read_half(b), read_half(b + 2)), y);
}

void q5_0(const uint8_t* b, float* y) {
  to_floats(_mm256_or_si256(nibbles(b + 6), fifth_bits(b + 2)), scaled(read_half(b), 16), y);
}

void q5_1(const uint8_t* b, float* y) {
  to_floats(_mm256_or_si256(nibbles(b + 8), fifth_bits(b + 4)),
            scaled_and_shifted(read_half(b), read_half(b + 2)), y);
}

void q8_0(const uint8_t* b, float* y) {
  to_floats<true>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 2)), times(read_half(b)), y);
}

// The K types have 256 elements, here in groups g of 32. Two runs of 32 bytes hold bits of four groups each.
__m256i bit_pairs(const uint8_t* bits, int g) {
  return field(bits + g / 4 * 32, g % 4 * 2, 3);
}
// Runs of 32 bytes hold a group in their low nibbles and the next one in their high ones.
__m256i nibble_run(const uint8_t* bits, int g) {
  return field(bits + g / 2 * 32, g % 2 * 4, 15);
}
// Bit g of 32 bytes, as 0 or `value`.
__m256i bit_of_bytes(const uint8_t* bytes, int g, char value) {
  const __m256i bit = field(bytes, g, 1);
  return _mm256_and_si256(_mm256_sub_epi8(_mm256_setzero_si256(), bit), _mm256_set1_epi8(value));
}

// 16 scales and minima of 16 elements each.
void q2_k(const uint8_t* b, float* y) {
  const float d = read_half(b + 80), dmin = read_half(b + 82);
  for (int g = 0; g < 8; ++g) {
    const __m256i q = bit_pairs(b + 16, g);
    const auto part = [&](int n) {
      return scaled_above(d * static_cast<float>(low(b[n])), dmin * static_cast<float>(high(b[n])));
    };
    to_floats<false>(_mm256_castsi256_si128(q), part(2 * g), y + 32 * g);
    to_floats<false>(_mm256_extracti128_si256(q, 1), part(2 * g + 1), y + 32 * g + 16);
  }
}

// As Q2_K with a third bit from a mask that says where nothing is subtracted, and 6-bit scales.
void q3_k(const uint8_t* b, float* y) {
  const uint8_t* packed = b + 96;
  const float d = read_half(b + 108);
  for (int g = 0; g < 8; ++g) {
    const __m256i q = _mm256_or_si256(bit_pairs(b + 32, g), bit_of_bytes(b, g, 4));
    const auto part = [&](int n) {
      const int lower = n < 8 ? low(packed[n]) : high(packed[n - 8]);
      const int upper = packed[8 + n % 4] >> (n / 4 * 2) & 3;
      return scaled(d * static_cast<float>((lower | upper << 4) - 32), 4);
    };
    to_floats<false>(_mm256_castsi256_si128(q), part(2 * g), y + 32 * g);
    to_floats<false>(_mm256_extracti128_si256(q, 1), part(2 * g + 1), y + 32 * g + 16);
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

void q4_k(const uint8_t* b, float* y) {
  const GroupScales groups(b + 4, read_half(b), read_half(b + 2));
  for (int g = 0; g < 8; ++g) {
    to_floats(nibble_run(b + 16, g), scaled_above(groups.scale[g], groups.minimum[g]), y + 32 * g);
  }
}

void q5_k(const uint8_t* b, float* y) {
  const GroupScales groups(b + 4, read_half(b), read_half(b + 2));
  for (int g = 0; g < 8; ++g) {
    const __m256i q = _mm256_or_si256(nibble_run(b + 48, g), bit_of_bytes(b + 16, g, 16));
    to_floats(q, scaled_above(groups.scale[g], groups.minimum[g]), y + 32 * g);
  }
}

// Two halves of 128 elements: 64 bytes of low nibbles, 32 bytes of upper bit pairs.
void q6_k(const uint8_t* b, float* y) {
  const uint8_t *upper = b + 128, *scales = b + 192;
  const float d = read_half(b + 208);
  for (int g = 0; g < 8; ++g) {
    const __m256i lower = field(b + g / 4 * 64 + g % 2 * 32, g % 4 / 2 * 4, 15);
    const __m256i q = _mm256_or_si256(lower, _mm256_slli_epi16(bit_pairs(upper, g), 4));
    const auto part = [&](int n) {
      return scaled(d * static_cast<float>(static_cast<int8_t>(scales[n])), 32);
    };
    to_floats<false>(_mm256_castsi256_si128(q), part(2 * g), y + 32 * g);
    to_floats<false>(_mm256_extracti128_si256(q, 1), part(2 * g + 1), y + 32 * g + 16);
  }
}

// Bytes of a table of 16 by 32 nibbles.
__m256i look_up(__m128i table, __m256i nibbles_of) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles_of);
}

__m128i nonlinear_values() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

void iq4_nl(const uint8_t* b, float* y) {
  to_floats<true>(look_up(nonlinear_values(), nibbles(b + 2)), times(read_half(b)), y);
}

void iq4_xs(const uint8_t* b, float* y) {
  const float d = read_half(b);
  const uint16_t upper = read16(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int lower = g % 2 == 0 ? low(b[4 + g / 2]) : high(b[4 + g / 2]);
    const float scale = d * static_cast<float>((lower | (upper >> (2 * g) & 3) << 4) - 32);
    to_floats<true>(look_up(nonlinear_values(), nibbles(b + 8 + 16 * g)), times(scale), y + 32 * g);
  }
}

// E2M1 numbers, doubled, times half a power of two (OCP Microscaling Formats 1.0).
void mxfp4(const uint8_t* b, float* y) {
  const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const uint32_t exponent = b[0];
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  float d;
  std::memcpy(&d, &bits, 4);
  to_floats<true>(look_up(values, nibbles(b + 1)), times(d), y);
}

// Rows of blocks of B bytes and n elements.
template <void (*block)(const uint8_t*, float*), int64_t elements, int64_t bytes>
void row_of(const void* row, int64_t n, float* y) {
  const uint8_t* b = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < n; i += elements, b += bytes) block(b, y + i);
}

void f32_row(const void* row, int64_t n, float* y) {
  std::memcpy(y, row, static_cast<size_t>(n) * 4);
}
void f16_row(const void* row, int64_t n, float* y) {
  const uint8_t* b = static_cast<const uint8_t*>(row);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 2 * i))));
  }
  for (; i < n; ++i) y[i] = read_half(b + 2 * i);
}
void bf16_row(const void* row, int64_t n, float* y) {
  const uint8_t* b = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(read16(b + 2 * i)) << 16;
    std::memcpy(y + i, &bits, 4);
  }
}
void f64_row(const void* row, int64_t n, float* y) {
  const uint8_t* b = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < n; ++i) {
    double value;
    std::memcpy(&value, b + 8 * i, 8);
    y[i] = static_cast<float>(value);
  }
}

}  // namespace

RowDecoder row_decoder(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return f32_row;
    case GgufType::f16:
      return f16_row;
    case GgufType::bf16:
      return bf16_row;
    case GgufType::f64:
      return f64_row;
    case GgufType::q4_0:
      return row_of<q4_0, 32, 18>;
    case GgufType::q4_1:
      return row_of<q4_1, 32, 20>;
    case GgufType::q5_0:
      return row_of<q5_0, 32, 22>;
    case GgufType::q5_1:
      return row_of<q5_1, 32, 24>;
    case GgufType::q8_0:
      return row_of<q8_0, 32, 34>;
    case GgufType::q2_k:
      return row_of<q2_k, kSuper, 84>;
    case GgufType::q3_k:
      return row_of<q3_k, kSuper, 110>;
    case GgufType::q4_k:
      return row_of<q4_k, kSuper, 144>;
    case GgufType::q5_k:
      return row_of<q5_k, kSuper, 176>;
    case GgufType::q6_k:
      return row_of<q6_k, kSuper, 210>;
    case GgufType::iq4_nl:
      return row_of<iq4_nl, 32, 18>;
    case GgufType::iq4_xs:
      return row_of<iq4_xs, kSuper, 136>;
    case GgufType::mxfp4:
      return row_of<mxfp4, 32, 17>;
    default:
      return nullptr;
  }
}

bool can_dequantize(GgufType type) {
  return row_decoder(type) != nullptr;
}

void dequantize(GgufType type, const void* blocks, int64_t n, float* out) {
  const RowDecoder decode = row_decoder(type);
  const GgufBlock& block = gguf_block(type);
  check_input(decode != nullptr, "GGUF type {} cannot be read", block.name);
  check(n % block.elements == 0, "{} elements are not whole blocks of {}", n, block.name);
  decode(blocks, n, out);
}

}  // namespace megalith
