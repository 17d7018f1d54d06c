#include "megalith/ops/gemm.h"
#include "tests/ops/support.h"

namespace megalith::cpu::emulated {
GemmKernels emulated_tile_kernels();
}

namespace megalith::test {

namespace {

class TilesTest : public OpTest {};

struct Case {
  int64_t m, n, k;
};

}  // namespace

// Rows around 16 and 32, columns around 16, 32 and 64, sums around 32 and past one pass of 512.
TEST_F(TilesTest, ProductsOfAnySizeAndLayout) {
  const cpu::GemmKernels kernels = cpu::emulated::emulated_tile_kernels();
  for (const Case& s : {Case{1, 1, 1},
                        {16, 16, 32},
                        {17, 33, 31},
                        {32, 64, 64},
                        {33, 65, 63},
                        {49, 15, 600},
                        {100, 130, 40},
                        {31, 48, 1030},
                        {130, 400, 33}}) {
    for (const bool a_rows : {true, false}) {
      for (const bool b_columns : {true, false}) {
        for (const bool add : {true, false}) {
          const Tensor a = random_tensor(DType::bf16, a_rows ? Shape{s.m, s.k} : Shape{s.k, s.m}, 1);
          const Tensor b = random_tensor(DType::bf16, b_columns ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
          const auto results = on_any_threads([&] {
            std::vector<Tensor> out;
            out.push_back(random_tensor(DType::f32, {s.m, s.n}, 3));
            gemm(context, kernels, s.m, s.n, s.k, {a.view().raw(), DType::bf16, a_rows ? s.k : s.m, a_rows},
                 {b.view().raw(), DType::bf16, b_columns ? s.k : s.n, b_columns},
                 {out[0].view().raw(), DType::f32, s.n, nullptr, add});
            return out;
          });
          const Tensor before = random_tensor(DType::f32, {s.m, s.n}, 3);
          Doubles expected, bound;
          for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = 0; j < s.n; ++j) {
              double sum = add ? get(before, i * s.n + j) : 0, size = std::abs(sum);
              for (int64_t k = 0; k < s.k; ++k) {
                const double product = get(a, a_rows ? i * s.k + k : k * s.m + i) *
                                       get(b, b_columns ? j * s.k + k : k * s.n + j);
                sum += product;
                size += std::abs(product);
              }
              expected.push_back(sum);
              bound.push_back(size * static_cast<double>(s.k + 2) * kFloatError);
            }
          }
          expect_close(results[0], expected, bound,
                       std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k));
        }
      }
    }
  }
}

}  // namespace megalith::test
