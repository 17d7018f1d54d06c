#include "megalith/model/encoded_weights.h"

#include <algorithm>

namespace megalith {

bool EncodedWeights::serves(const Parameter& parameter, std::span<const StoredTensor> tensors) {
  const bool used_by_rows = parameter.is_product_weight || parameter.name == "embedding.token.weight";
  return parameter.shape.rank() == 2 && used_by_rows &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const StoredTensor& t) { return !t.transposed && t.added == 0; });
}

EncodedMatrix& EncodedWeights::add(Parameter& parameter) {
  matrices_.push_back(std::make_unique<EncodedMatrix>());
  EncodedMatrix& matrix = *matrices_.back();
  matrix.columns = parameter.shape[1];
  matrix.rows.reserve(static_cast<size_t>(parameter.allocated_rows));
  parameter.encoded = &matrix;
  return matrix;
}

void EncodedWeights::append(EncodedMatrix& matrix, const StoredTensor& stored, const void* data,
                            const RowCode& code) {
  const std::byte* begin = static_cast<const std::byte*>(data);
  const int64_t row_bytes = matrix.columns / code.block_elements * code.block_bytes;
  for (int64_t row = 0; row < stored.rows; ++row) {
    matrix.rows.push_back(begin + (stored.unused_rows + stored.stored_row(row)) * row_bytes);
  }
  matrix.groups.push_back({static_cast<int64_t>(matrix.rows.size()), code});
}

void EncodedWeights::finish(EncodedMatrix& matrix, const Parameter& parameter) {
  const std::byte* any = matrix.rows.back();
  matrix.rows.resize(static_cast<size_t>(parameter.allocated_rows), any);
  matrix.groups.back().end = parameter.allocated_rows;
}

RowCode row_code(GgufType type) {
  const GgufBlock& block = gguf_block(type);
  return {row_decoder(type), block.elements, block.bytes};
}

namespace {

template <class T>
void decode_bytes(const void* from, int64_t n, float* out) {
  const T* in = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
}

}  // namespace

RowCode row_code(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return {decode_bytes<Float8E4M3>, 1, 1};
    case DType::f8_e5m2:
      return {decode_bytes<Float8E5M2>, 1, 1};
    case DType::f64:
      return row_code(GgufType::f64);
    case DType::f16:
      return row_code(GgufType::f16);
    case DType::bf16:
      return row_code(GgufType::bf16);
    default:
      return row_code(GgufType::f32);
  }
}

}  // namespace megalith
