#include "megalith/ops/norm.h"

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

}  // namespace megalith::test
