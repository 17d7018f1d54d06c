#include "megalith/ops/norm.h"

#include "megalith/ops/head_norm.h"
#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class NormTest : public OpTest {};

}  // namespace

TEST_F(NormTest, EqualsTheOracle) {
  uint64_t seed = 1;
  const float epsilon = 1e-5f;
  for (const DType dtype : training_types()) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      for (const bool with_bias : {true, false}) {
        for (const auto& [rows, columns] :
             {std::pair<int64_t, int64_t>{1, 2}, {3, 17}, {67, 64}, {301, 771}}) {
          const Tensor x = random_tensor(dtype, {rows, columns}, ++seed),
                       dy = random_tensor(dtype, {rows, columns}, ++seed);
          const Tensor weight = random_tensor(dtype, {columns}, ++seed);
          const Tensor bias = with_bias ? random_tensor(dtype, {columns}, ++seed) : Tensor();
          const Tensor branch = random_tensor(dtype, {rows, columns}, ++seed);
          const auto results = on_any_threads([&] {
            std::vector<Tensor> out;
            out.emplace_back(dtype, Shape{rows, columns});
            out.push_back(copy_of(branch));
            out.emplace_back(DType::f32, Shape{columns});
            out.emplace_back(DType::f32, Shape{columns});
            Tensor mean = kind == NormKind::layer ? Tensor(DType::f32, {rows}) : Tensor(),
                   rstd(DType::f32, {rows});
            norm_forward(context, kind, x, weight, bias, epsilon, out[0], mean, rstd);
            norm_backward(context, kind, dy, x, weight, mean, rstd, out[1], out[2],
                          with_bias ? out[3].view() : TensorView());
            return out;
          });
          const int n = static_cast<int>(rows), c = static_cast<int>(columns);
          const bool centred = kind == NormKind::layer;
          const Doubles b = with_bias ? doubles(bias) : Doubles();
          Doubles dw(static_cast<size_t>(columns)), db(with_bias ? dw.size() : 0);
          const Doubles y = reference::norm(doubles(x), doubles(weight), b, centred, epsilon, n, c);
          Doubles dx = reference::norm_backward(doubles(dy), doubles(x), doubles(weight), centred, epsilon, n,
                                                c, dw, db);
          // A row is divided by its deviation, which for two columns can be far below one: an error of the
          // mean grows with its inverse, that of the gradient with its square.
          double rstd = 1;
          for (int64_t i = 0; i < rows; ++i) {
            double sum = 0, squares = 0;
            for (int64_t j = 0; j < columns; ++j) sum += centred ? get(x, i * columns + j) / columns : 0;
            for (int64_t j = 0; j < columns; ++j)
              squares += std::pow(get(x, i * columns + j) - sum, 2) / columns;
            rstd = std::max(rstd, 1 / std::sqrt(squares + epsilon));
          }
          const double chain = static_cast<double>(columns / 8 + 16) * kFloatError * 4 * rstd;
          const std::string what =
              std::to_string(rows) + "x" + std::to_string(columns) + " " + std::string(name(dtype));
          expect_close(results[0], y, chain * largest(y), "y of " + what);
          for (size_t i = 0; i < dx.size(); ++i) dx[i] += get(branch, static_cast<int64_t>(i));
          expect_close(results[1], dx,
                       chain * rstd * (largest(dx) + largest(doubles(dy)) * largest(doubles(weight))),
                       "dx of " + what);
          const double rows_chain = chain + static_cast<double>(rows + 2) * kFloatError;
          const double normalised = std::sqrt(static_cast<double>(columns));  // no |x^| is larger
          expect_close(results[2], dw,
                       rows_chain * std::sqrt(rows) * largest(doubles(dy)) * std::min(normalised, 6.0),
                       "dweight of " + what);
          if (with_bias)
            expect_close(results[3], db, rows_chain * std::sqrt(rows) * largest(doubles(dy)),
                         "dbias of " + what);
        }
      }
    }
  }
}

// Sums over a head's D columns forward; over N rows of H heads for the weights' gradients. A row is divided
// by its size, as above.
TEST_F(NormTest, HeadNormsEqualTheOracle) {
  uint64_t seed = 1;
  for (const DType dtype : training_types()) {
    for (const auto& [rows, heads, kv_heads, size] :
         {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 1, 8}, {70, 6, 2, 20}, {9, 5, 5, 64}}) {
      const AttentionShape shape{
          .batch = 1, .tokens = rows, .heads = heads, .kv_heads = kv_heads, .head_size = size, .scale = 1};
      const Tensor qkv = random_tensor(dtype, {rows, shape.packed_columns()}, ++seed),
                   dy = random_tensor(dtype, {rows, shape.packed_columns()}, ++seed);
      const Tensor query_weight = random_tensor(dtype, {size}, ++seed),
                   key_weight = random_tensor(dtype, {size}, ++seed);
      const Tensor without_backward = copy_of(qkv);
      const auto results = on_any_threads([&, rows = rows, heads = heads, kv_heads = kv_heads, size = size] {
        std::vector<Tensor> out;
        out.push_back(copy_of(qkv));
        out.push_back(copy_of(dy));
        out.emplace_back(DType::f32, Shape{size});
        out.emplace_back(DType::f32, Shape{size});
        const Tensor before(dtype, {rows, (heads + kv_heads) * size}),
            rstd(DType::f32, {rows * (heads + kv_heads)});
        head_norm_forward(context, shape, query_weight, key_weight, 1e-6f, out[0], before, rstd);
        head_norm_backward(context, shape, query_weight, key_weight, before, rstd, out[1], out[2], out[3]);
        return out;
      });
      head_norm_forward(context, shape, query_weight, key_weight, 1e-6f, without_backward, {}, {});
      EXPECT_TRUE(same_bits(without_backward, results[0]));
      const int n = static_cast<int>(rows), columns = static_cast<int>(shape.packed_columns()),
                h = static_cast<int>(heads), k = static_cast<int>(kv_heads), d = static_cast<int>(size);
      Doubles y = doubles(qkv), dx = doubles(dy), dq(static_cast<size_t>(d)), dk(static_cast<size_t>(d));
      const Doubles x = y;
      reference::head_norm(y, doubles(query_weight), 1e-6, n, columns, 0, h, d);
      reference::head_norm(y, doubles(key_weight), 1e-6, n, columns, h * d, k, d);
      reference::head_norm_backward(dx, x, doubles(query_weight), 1e-6, n, columns, 0, h, d, dq);
      reference::head_norm_backward(dx, x, doubles(key_weight), 1e-6, n, columns, h * d, k, d, dk);
      const double chain = static_cast<double>(size / 8 + 16) * kFloatError * 8;
      expect_close(results[0], y, chain * largest(y), "y");
      expect_close(results[1], dx, chain * 4 * (largest(dx) + largest(doubles(dy))), "dx");
      const double sum = (chain + static_cast<double>(rows * heads) * kFloatError) *
                         std::sqrt(static_cast<double>(rows * heads)) * largest(doubles(dy)) * 4;
      expect_close(results[2], dq, sum, "d_query_weight");
      expect_close(results[3], dk, sum, "d_key_weight");
    }
  }
}

}  // namespace megalith::test
