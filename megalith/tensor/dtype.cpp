#include "megalith/tensor/dtype.h"

#include <array>

namespace megalith {

namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<Entry, 15> kEntries = {{{DType::f64, "F64", 8},
                                             {DType::f32, "F32", 4},
                                             {DType::f16, "F16", 2},
                                             {DType::bf16, "BF16", 2},
                                             {DType::i64, "I64", 8},
                                             {DType::i32, "I32", 4},
                                             {DType::i16, "I16", 2},
                                             {DType::i8, "I8", 1},
                                             {DType::u64, "U64", 8},
                                             {DType::u32, "U32", 4},
                                             {DType::u16, "U16", 2},
                                             {DType::u8, "U8", 1},
                                             {DType::boolean, "BOOL", 1},
                                             {DType::f8_e4m3, "F8_E4M3", 1},
                                             {DType::f8_e5m2, "F8_E5M2", 1}}};

}  // namespace

size_t size_of(DType dtype) {
  return kEntries[static_cast<size_t>(dtype)].size;
}

std::string_view name(DType dtype) {
  return kEntries[static_cast<size_t>(dtype)].name;
}

DType dtype_from_name(std::string_view text) {
  for (const Entry& entry : kEntries) {
    if (entry.name == text) return entry.dtype;
  }
  fail_input("unknown tensor type \"{}\"", text);
}

}  // namespace megalith
