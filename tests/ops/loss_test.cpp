#include "megalith/ops/loss.h"

#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class LossTest : public OpTest {};

}  // namespace

// The normaliser is a logarithm of a sum of V exponentials, each good to 2e-7, summed in chains of V/16.
TEST_F(LossTest, EqualsTheOracle) {
  for (const DType dtype : training_types()) {
    for (const auto& [vocabulary, padded] :
         {std::pair<int64_t, int64_t>{1, 1}, {2, 16}, {97, 100}, {5003, 5056}}) {
      for (const double deviation : {1.0, 12.0}) {
        const int64_t rows = 7;
        const Tensor logits = random_tensor(dtype, {rows, padded}, 1, deviation);
        std::vector<int> ids;
        Doubles weight_values;
        Tensor weights(DType::f32, {rows});
        for (int n = 0; n < rows; ++n) {
          ids.push_back(n == 2 ? -1 : static_cast<int>(n * 31 % vocabulary));
          set(weights, n, 0.1 * (n + 1));
          weight_values.push_back(get(weights, n));
        }
        const Tensor targets = integers(ids);
        const auto results = on_any_threads([&] {
          std::vector<Tensor> out;
          out.emplace_back(DType::f32, Shape{rows});
          out.emplace_back(DType::f32, Shape{rows});
          out.push_back(copy_of(logits));
          cross_entropy_forward(context, logits, targets, vocabulary, out[0]);
          cross_entropy_backward(context, out[2], targets, weights, vocabulary, out[1]);
          return out;
        });
        Doubles gradient, losses;
        reference::cross_entropy(doubles(logits), ids, weight_values, static_cast<int>(vocabulary),
                                 static_cast<int>(padded), &gradient);
        for (int n = 0; n < rows; ++n) {
          Doubles one(static_cast<size_t>(padded));
          for (int64_t j = 0; j < padded; ++j) one[static_cast<size_t>(j)] = get(logits, n * padded + j);
          losses.push_back(reference::cross_entropy(one, {ids[static_cast<size_t>(n)]}, {1.0},
                                                    static_cast<int>(vocabulary), static_cast<int>(padded),
                                                    static_cast<Doubles*>(nullptr)));
        }
        const double bound = 4e-7 + static_cast<double>(vocabulary / 16 + 8) * kFloatError +
                             kFloatError * 2 * largest(doubles(logits));
        expect_close(results[0], losses, bound, "loss");
        EXPECT_TRUE(same_bits(results[0], results[1]));
        expect_close(results[2], gradient, bound, "gradient of the logits");
      }
    }
  }
}

TEST_F(LossTest, LargeLogitsDoNotOverflow) {
  Tensor logits(DType::f32, {1, 3}), losses(DType::f32, {1}), weights(DType::f32, {1});
  set(logits, 0, 3e38), set(logits, 1, -3e38), set(logits, 2, 1e30), set(weights, 0, 1);
  cross_entropy_backward(context, logits, integers({0}), weights, 3, losses);
  EXPECT_EQ(get(losses, 0), 0);
  for (int j = 0; j < 3; ++j) EXPECT_EQ(get(logits, j), 0);
}

TEST_F(LossTest, ErrorsNameTheRow) {
  const Tensor logits(DType::f32, {2, 8}), losses(DType::f32, {2});
  try {
    cross_entropy_forward(context, logits, integers({1, 7}), 7, losses);
    FAIL() << "accepted a target in the padding";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cross_entropy_forward: target 7 at row 1 is outside the vocabulary of 7");
  }
}

}  // namespace megalith::test
