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

void write_half(float value, uint8_t* at) {
  const uint16_t bits = Float16(value).bits;
  std::memcpy(at, &bits, 2);
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
