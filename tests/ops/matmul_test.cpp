#include "megalith/ops/matmul.h"

#include "tests/ops/support.h"

namespace megalith::test {

namespace {

struct Case {
  int64_t n, c, f;
};

// Odd sizes, sizes around the tiles (6 rows, 16 lanes, 64 columns), past one pass along each dimension, and
// with a result that is stored past the caches.
const std::vector<Case> kCases = {{1, 1, 1},      {1, 64, 64},   {2, 33, 17},     {5, 7, 130},
                                  {7, 128, 96},   {8, 770, 65},  {13, 31, 450},   {33, 100, 64},
                                  {48, 401, 48},  {97, 64, 391}, {6, 800, 16},    {130, 9, 385},
                                  {200, 779, 40}, {3, 1601, 70}, {410, 1100, 70}, {700, 40, 800}};

Doubles scaled(Doubles x, double factor) {
  for (double& value : x) value *= factor;
  return x;
}

class MatmulTest : public OpTest {};

}  // namespace

TEST_F(MatmulTest, ForwardEqualsTheOracle) {
  uint64_t seed = 1;
  for (const DType dtype : training_types()) {
    for (const Case& s : kCases) {
      for (const DType result : {dtype, DType::f32}) {
        for (const bool with_bias : {false, true}) {
          const Tensor x = random_tensor(dtype, {s.n, s.c}, ++seed),
                       w = random_tensor(dtype, {s.f, s.c}, ++seed);
          const Tensor bias = with_bias ? random_tensor(dtype, {s.f}, ++seed) : Tensor();
          const auto y = on_any_threads([&] {
            std::vector<Tensor> out;
            out.emplace_back(result, Shape{s.n, s.f});
            linear_forward(context, x, w, bias, out[0]);
            return out;
          });
          const Doubles b = with_bias ? doubles(bias) : Doubles();
          const int n = static_cast<int>(s.n), c = static_cast<int>(s.c), f = static_cast<int>(s.f);
          const Doubles bound = scaled(
              reference::linear(magnitudes(doubles(x)), magnitudes(doubles(w)), magnitudes(b), n, c, f),
              static_cast<double>(s.c + 2) * kFloatError);
          expect_close(y[0], reference::linear(doubles(x), doubles(w), b, n, c, f), bound,
                       "y of " + std::to_string(s.n) + "x" + std::to_string(s.c) + "x" + std::to_string(s.f));
        }
      }
    }
  }
}

TEST_F(MatmulTest, BackwardEqualsTheOracle) {
  uint64_t seed = 100;
  for (const DType dtype : training_types()) {
    for (const Case& s : kCases) {
      const Tensor x = random_tensor(dtype, {s.n, s.c}, ++seed), w = random_tensor(dtype, {s.f, s.c}, ++seed);
      const Tensor dy = random_tensor(dtype, {s.n, s.f}, ++seed),
                   before = random_tensor(DType::f32, {s.f, s.c}, ++seed);
      const Tensor bias_before = random_tensor(DType::f32, {s.f}, ++seed);
      const auto results = on_any_threads([&] {
        std::vector<Tensor> out;
        out.emplace_back(dtype, Shape{s.n, s.c});
        out.emplace_back(DType::f32, Shape{s.f, s.c});
        out.push_back(copy_of(before));
        out.push_back(copy_of(bias_before));
        linear_backward_input(context, dy, w, out[0]);
        linear_backward_weight(context, dy, x, out[1], false);
        linear_backward_weight(context, dy, x, out[2], true);
        bias_backward(context, dy, out[3]);
        return out;
      });
      const int n = static_cast<int>(s.n), c = static_cast<int>(s.c), f = static_cast<int>(s.f);
      Doubles dw(static_cast<size_t>(s.f * s.c)), db(static_cast<size_t>(s.f));
      const Doubles dx = reference::linear_backward(doubles(dy), doubles(x), doubles(w), n, c, f, dw, db);
      Doubles dw_bound = magnitudes(doubles(before)), db_bound = magnitudes(doubles(bias_before));
      const Doubles dx_bound =
          reference::linear_backward(magnitudes(doubles(dy)), magnitudes(doubles(x)), magnitudes(doubles(w)),
                                     n, c, f, dw_bound, db_bound);
      const double per_row = static_cast<double>(s.n + 2) * kFloatError;
      const std::string size = std::to_string(s.n) + "x" + std::to_string(s.c) + "x" + std::to_string(s.f);
      expect_close(results[0], dx, scaled(dx_bound, static_cast<double>(s.f + 2) * kFloatError),
                   "dx of " + size);
      expect_close(results[1], dw, scaled(dw_bound, per_row), "dw of " + size);
      Doubles added = dw, bias_added = db;
      for (size_t i = 0; i < dw.size(); ++i) added[i] += get(before, static_cast<int64_t>(i));
      for (size_t i = 0; i < db.size(); ++i) bias_added[i] += get(bias_before, static_cast<int64_t>(i));
      expect_close(results[2], added, scaled(dw_bound, per_row), "accumulated dw of " + size);
      expect_close(results[3], bias_added, scaled(db_bound, per_row), "dbias of " + size);
    }
  }
}

// What a KV cache relies on: a row's result does not depend on the rows beside it.
TEST_F(MatmulTest, ARowDoesNotDependOnOtherRows) {
  // One pass over C; several; several, and a result that is stored past the caches.
  for (const Case& s : {Case{70, 500, 200}, Case{130, 900, 200}, Case{700, 1601, 800}}) {
    for (const DType dtype : training_types()) {
      const Tensor x = random_tensor(dtype, {s.n, s.c}, 1), w = random_tensor(dtype, {s.f, s.c}, 2);
      const Tensor bias = random_tensor(dtype, {s.f}, 3);
      Tensor together(dtype, {s.n, s.f});
      linear_forward(context, x, w, bias, together);
      for (const int64_t count : {1, 2, 7, 40}) {
        Tensor alone(dtype, {count, s.f});
        linear_forward(context, x.view().slice(11, 11 + count), w, bias, alone);
        EXPECT_TRUE(same_bits(alone, together.view().slice(11, 11 + count)))
            << count << " of " << s.n << " rows of " << name(dtype);
      }
    }
  }
}

TEST_F(MatmulTest, PackedWeightsGiveTheSameBits) {
  for (const DType dtype : training_types()) {
    for (const Case& s : kCases) {
      const Tensor x = random_tensor(dtype, {s.n, s.c}, 1), w = random_tensor(dtype, {s.f, s.c}, 2);
      const Tensor bias = random_tensor(dtype, {s.f}, 3);
      const Tensor bytes(DType::u8, {static_cast<int64_t>(packed_weight_bytes(dtype, s.f, s.c))});
      const PackedWeight packed = pack_weight(context, w, bytes);
      Tensor y(dtype, {s.n, s.f});
      linear_forward(context, x, w, bias, y);
      const auto results = on_any_threads([&] {
        std::vector<Tensor> out;
        out.emplace_back(dtype, Shape{s.n, s.f});
        linear_forward(context, x, packed, bias, out[0]);
        return out;
      });
      EXPECT_TRUE(same_bits(y, results[0])) << s.n << "x" << s.c << "x" << s.f << " " << name(dtype);
    }
  }
}

TEST_F(MatmulTest, NoRowsGiveNothingAndZeroGradients) {
  const Tensor w = random_tensor(DType::f32, {4, 3}, 1);
  Tensor dw = random_tensor(DType::f32, {4, 3}, 2);
  const Tensor x(DType::f32, {0, 3}), dy(DType::f32, {0, 4});
  linear_forward(context, x, w, {}, dy);
  linear_backward_weight(context, dy, x, dw, true);
  EXPECT_TRUE(same_bits(dw, random_tensor(DType::f32, {4, 3}, 2)));
  linear_backward_weight(context, dy, x, dw, false);
  EXPECT_EQ(largest(doubles(dw)), 0);
}

TEST_F(MatmulTest, ErrorsNameOperationAndOperand) {
  const Tensor x(DType::f32, {4, 3}), w(DType::f32, {5, 2}), y(DType::f32, {4, 5});
  try {
    linear_forward(context, x, w, {}, y);
    FAIL() << "accepted a weight of other inputs";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "linear_forward: w is F32 [5, 2]; expected F32 [5, 3]");
  }
}

TEST_F(MatmulTest, BooksTimeAndOperations) {
  Profiler profiler;
  context.profiler = &profiler;
  const Tensor x = random_tensor(DType::f32, {4, 3}, 1), w = random_tensor(DType::f32, {5, 3}, 2),
               y(DType::f32, {4, 5});
  linear_forward(context, x, w, {}, y);
  ASSERT_EQ(profiler.entries().size(), 1u);
  EXPECT_EQ(profiler.entries()[0].part, "matmul");
  EXPECT_EQ(profiler.entries()[0].flops, 2.0 * 4 * 3 * 5);
}

}  // namespace megalith::test
