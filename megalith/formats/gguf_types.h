// Tensor types of GGUF: blocks of a fixed number of elements along a row, each with scales of its own
// (ggml's quantised types).
#pragma once

#include <cstdint>
#include <string_view>

namespace megalith {

/// The numbers of the file format.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
};

/// Size of a type's blocks.
struct GgufBlock {
  std::string_view name;
  int64_t elements;
  int64_t bytes;
};

/// Null for a number that no type has.
const GgufBlock* find_gguf_block(uint32_t type);
/// Of a type that is known.
const GgufBlock& gguf_block(GgufType type);
inline std::string_view name(GgufType type) {
  return gguf_block(type).name;
}

/// Decodes the `n` elements of a row, whole blocks.
using RowDecoder = void (*)(const void* row, int64_t n, float* out);
/// Null for types that dequantize() does not know.
RowDecoder row_decoder(GgufType type);
/// Whether dequantize() knows the type.
bool can_dequantize(GgufType type);
/// `n` elements (whole blocks) as fp32, with the bits that the `gguf` Python package gives: products and sums
/// are rounded one by one, in its order. Throws InputError for a type it does not know.
void dequantize(GgufType type, const void* blocks, int64_t n, float* out);

/// Whether quantize() knows the type: F32, F16, BF16, Q8_0 and Q4_0.
bool can_quantize(GgufType type);
/// The largest magnitude that a type holds: beyond it scales would overflow fp16.
float largest_quantizable(GgufType type);
/// The reverse of dequantize(), with the bits of ggml's reference quantisers, for finite numbers within
/// largest_quantizable(). Throws InputError for a type it does not know.
void quantize(GgufType type, const float* x, int64_t n, void* blocks);

}  // namespace megalith
