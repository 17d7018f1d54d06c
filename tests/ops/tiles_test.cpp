#include "megalith/ops/gemm.h"
#include "tests/ops/support.h"

namespace megalith::cpu::emulated {
void emulated_tile_kernels(GemmKernels& gemm, AttentionKernels& attention);
}

namespace megalith::test {

namespace {

class TilesTest : public OpTest {
 protected:
  TilesTest() { cpu::emulated::emulated_tile_kernels(gemm_kernels, attention); }

  cpu::GemmKernels gemm_kernels;
  cpu::AttentionKernels attention;
};

struct Case {
  int64_t m, n, k;
};

}  // namespace

// Rows around 16 and 32, columns around 16, 32 and 64, sums around 32 and past one pass of 512.
TEST_F(TilesTest, ProductsOfAnySizeAndLayout) {
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
            gemm(context, gemm_kernels, s.m, s.n, s.k,
                 {a.view().raw(), DType::bf16, a_rows ? s.k : s.m, a_rows},
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

// The kernels of attention, driven as attention.cpp does, against the vector kernels' oracle.
TEST_F(TilesTest, AttentionEqualsTheOracle) {
  for (const int64_t tokens : {1, 33, 64, 130, 201}) {
    for (const int64_t size : {20, 33, 64, 80}) {
      for (const bool documents : {false, true}) {
        const int64_t heads = 4, kv_heads = 2, columns = (heads + 2 * kv_heads) * size;
        const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
        cpu::AttentionGeometry geometry{tokens, heads, kv_heads, size, columns, scale};
        geometry.softcap = documents ? 5.0f : 0.0f;
        const cpu::MaskSource mask;
        const Tensor qkv = random_tensor(DType::bf16, {tokens, columns}, 1);
        const Tensor dout = random_tensor(DType::bf16, {tokens, heads * size}, 2);
        const Tensor out(DType::bf16, {tokens, heads * size}), dqkv(DType::bf16, {tokens, columns});
        const Tensor cached(DType::bf16, {tokens, heads * size}), log_sum_exp(DType::f32, {heads, tokens});
        std::vector<int> starts;
        for (int t = 0; t < tokens; ++t) starts.push_back(documents ? t / 37 * 37 : 0);
        // Documents that are seen both ways, and else what a window before each query holds.
        std::vector<cpu::KeyRange> visible;
        for (int t = 0; t < tokens; ++t) {
          if (documents) {
            visible.push_back({t / 37 * 37, std::min(t / 37 * 37 + 37, static_cast<int>(tokens))});
          } else {
            visible.push_back({std::max(0, t - 69), t + 1});
          }
        }

        ArenaScope scope(arena);
        char* packed =
            static_cast<char*>(arena.allocate(static_cast<size_t>(attention.packed_bytes(tokens, size))));
        void* scratch = arena.allocate(static_cast<size_t>(
            std::max({attention.forward_scratch_bytes(size), attention.backward_scratch_bytes(tokens, size),
                      attention.cache_scratch_bytes(size)})));
        const uint16_t* base = static_cast<const uint16_t*>(qkv.view().raw());
        Tensor keys(DType::bf16, {tokens, kv_heads * size}), values(DType::bf16, {tokens, kv_heads * size});
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t j = 0; j < kv_heads * size; ++j) {
            set(keys, t * kv_heads * size + j, get(qkv, t * columns + heads * size + j));
            set(values, t * kv_heads * size + j, get(qkv, t * columns + (heads + kv_heads) * size + j));
          }
        }
        for (int64_t kv = 0; kv < kv_heads; ++kv) {
          const uint16_t* key = base + (heads + kv) * size;
          attention.pack(key, key + kv_heads * size, columns, 0, tokens, tokens, size, packed);
          for (int64_t head = 2 * kv; head < 2 * kv + 2; ++head) {
            for (int64_t begin = 0; begin < tokens; begin += attention.query_block) {
              attention.forward(geometry, qkv.view().raw(), packed, visible.data(), mask, 0, head, begin,
                                std::min(tokens, begin + attention.query_block), out.view().raw(),
                                log_sum_exp.data<float>(), scratch);
            }
          }
          for (int64_t first = 0; first < 2 * tokens; first += attention.query_block) {
            attention.cached(
                geometry, qkv.view().raw(), 0, visible.data(), keys.view().raw(), values.view().raw(), kv,
                first, std::min(2 * tokens, first + attention.query_block), cached.view().raw(), scratch);
          }
        }
        for (int64_t kv = 0; kv < kv_heads; ++kv) {
          attention.backward(geometry, qkv.view().raw(), visible.data(), mask, 0, kv, out.view().raw(),
                             log_sum_exp.data<float>(), dout.view().raw(), dqkv.view().raw(), scratch);
        }

        reference::AttentionShape oracle{1, static_cast<int>(tokens), 4, 2, static_cast<int>(size), scale};
        oracle.causal = !documents;
        oracle.window = documents ? 0 : 70;
        oracle.softcap = geometry.softcap;
        const reference::AttentionMask mask_of_documents{.keep = {}, .starts = starts};
        Doubles probabilities;
        const Doubles expected = reference::attention(doubles(qkv), oracle, mask_of_documents, probabilities);
        const Doubles gradient = reference::attention_backward(doubles(dout), doubles(qkv), oracle,
                                                               mask_of_documents, probabilities);
        const double rounding = rounding_error(DType::bf16), most = largest(doubles(qkv));
        const std::string what = std::to_string(tokens) + " tokens, heads of " + std::to_string(size);
        expect_close(out, expected, 2 * rounding * most, "out of " + what);
        expect_close(dqkv, gradient, 16 * rounding * std::max(largest(gradient), most), "dqkv of " + what);
        EXPECT_TRUE(same_bits(out, cached)) << what;
      }
    }
  }
}

}  // namespace megalith::test
