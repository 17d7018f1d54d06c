// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/float16.h"
#include "megalith/base/float8.h"

namespace megalith {

enum class DType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2
};

/// Bytes of one element.
size_t size_of(DType dtype);

/// The name used in messages and files of ours, equal to the safetensors one: "F32", "BF16", ...
std::string_view name(DType dtype);

/// Parses a safetensors type name. Throws InputError for an unknown one.
DType dtype_from_name(std::string_view text);

inline bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, Float16>) return DType::f16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::bf16;
  if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, int16_t>) return DType::i16;
  if constexpr (std::is_same_v<T, int8_t>) return DType::i8;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::u64;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::u32;
  if constexpr (std::is_same_v<T, uint16_t>) return DType::u16;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
}

/// Calls `function` with std::type_identity<T> for the C++ type of a training dtype (fp32, bf16, fp16).
template <class Function>
decltype(auto) dispatch_float(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f32:
      return function(std::type_identity<float>{});
    case DType::bf16:
      return function(std::type_identity<BFloat16>{});
    case DType::f16:
      return function(std::type_identity<Float16>{});
    default:
      fail("dtype {} is not a training type (F32, BF16, F16)", name(dtype));
  }
}

/// Whether files may hold weights of this type.
inline bool is_weight_type(DType dtype) {
  return is_floating(dtype) || dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2;
}

/// The same for every type that is_weight_type().
template <class Function>
decltype(auto) dispatch_weight(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f64:
      return function(std::type_identity<double>{});
    case DType::f8_e4m3:
      return function(std::type_identity<Float8E4M3>{});
    case DType::f8_e5m2:
      return function(std::type_identity<Float8E5M2>{});
    default:
      return dispatch_float(dtype, std::forward<Function>(function));
  }
}

}  // namespace megalith
