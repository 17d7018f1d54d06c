#include "megalith/ops/encoded_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "megalith/ops/matmul.h"
#include "tests/ops/support.h"

namespace megalith {
namespace {

// Blocks of N bytes behind a scale.
template <int N>
void decode(const void* blocks, int64_t n, float* out) {
  const char* block = static_cast<const char*>(blocks);
  for (int64_t i = 0; i < n; i += N, block += 4 + N) {
    float scale;
    std::memcpy(&scale, block, 4);
    for (int j = 0; j < N; ++j) out[i + j] = scale * static_cast<float>(block[4 + j]);
  }
}
constexpr RowCode kSmall{decode<32>, 32, 36}, kLarge{decode<256>, 256, 260};

// A matrix with rows of two codes, in an order of their own, and the same decoded.
struct Coded {
  std::vector<char> bytes;
  EncodedMatrix matrix;
  Tensor decoded;

  Coded(int64_t rows, int64_t columns, uint32_t seed) : decoded(DType::f32, {rows, columns}) {
    std::mt19937 random(seed);
    const int64_t small = rows / 3;
    const auto bytes_of = [&](int64_t row) {
      const RowCode& code = row < small ? kSmall : kLarge;
      return columns / code.block_elements * code.block_bytes;
    };
    int64_t total = 0;
    for (int64_t row = 0; row < rows; ++row) total += bytes_of(row);
    bytes.resize(static_cast<size_t>(total));
    for (char& byte : bytes) byte = static_cast<char>(random() % 255 - 127);
    matrix.columns = columns;
    matrix.groups = {{small, kSmall}, {rows, kLarge}};
    int64_t offset = total;  // the last row lies first
    for (int64_t row = 0; row < rows; ++row) {
      offset -= bytes_of(row);
      char* at = bytes.data() + offset;
      const RowCode& code = row < small ? kSmall : kLarge;
      for (int64_t block = 0; block < columns / code.block_elements; ++block) {
        const float scale = 1.0f / static_cast<float>(64 + random() % 512);
        std::memcpy(at + block * code.block_bytes, &scale, 4);
      }
      matrix.rows.push_back(reinterpret_cast<const std::byte*>(at));
      code.decode(at, columns, decoded.data<float>() + row * columns);
    }
  }
};

TEST(EncodedMatrix, ProductsAreThoseOfTheDecodedMatrixBitForBit) {
  Arena arena("workspace");
  const ExecContext exec{arena, 3};
  std::mt19937 random(1);
  for (const int64_t columns : {256, 512, 2816}) {
    for (const int64_t outputs : {1, 77, 500}) {
      const Coded coded(outputs, columns, static_cast<uint32_t>(columns + outputs));
      for (const int64_t rows : {1, 3, 33, 150}) {
        Tensor x(DType::f32, {rows, columns}), bias(DType::f32, {outputs});
        Tensor y(DType::f32, {rows, outputs}), want(DType::f32, {rows, outputs});
        for (Tensor* tensor : {&x, &bias}) {
          for (int64_t i = 0; i < tensor->view().elements(); ++i) {
            tensor->data<float>()[i] = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
          }
        }
        for (const TensorView b : {TensorView(), bias.view()}) {
          linear_forward(exec, x, coded.matrix, b, y);
          linear_forward(exec, x, coded.decoded, b, want);
          ASSERT_EQ(std::memcmp(y.data<float>(), want.data<float>(), y.view().bytes()), 0)
              << columns << " " << outputs << " " << rows;
        }
      }
    }
  }
}

TEST(EncodedMatrix, LookUpsAreRows) {
  Arena arena("workspace");
  const ExecContext exec{arena, 2};
  const Coded coded(20, 512, 7);
  std::vector<int32_t> ids = {19, 0, 5, 6, 7, 5};
  Tensor y(DType::f32, {6, 512});
  const TensorView view(ids.data(), DType::i32, {6});
  look_up(exec, view, coded.matrix, y);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(std::memcmp(y.data<float>() + i * 512, coded.decoded.data<float>() + ids[i] * 512, 2048), 0);
  }
  ids[2] = 20;
  EXPECT_THROW(look_up(exec, view, coded.matrix, y), Error);
}

}  // namespace
}  // namespace megalith
