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
      for (const auto& [deviation, rule] : {std::pair<double, LogitRule>{1, {}},
                                            {12, {}},
                                            {3, {.scale = 0.5f, .softcap = 0}},
                                            {12, {.scale = 1.5f, .softcap = 10}}}) {
        const int64_t rows = 7;
        const Tensor scores = random_tensor(dtype, {rows, padded}, 1, deviation);
        const Tensor logits = copy_of(scores);
        apply_logit_rule(context, rule, logits);
        const Doubles exact_logits = reference::soft_cap(doubles(scores), rule.scale, rule.softcap);
        expect_close(logits, exact_logits, 8e-7 * largest(exact_logits), "logits");
        std::vector<int> ids;
        Doubles weight_values;
        Tensor weights(DType::f32, {rows});
        for (int n = 0; n < rows; ++n) {
          ids.push_back(n == 2 ? -1 : static_cast<int>(n * 31 % vocabulary));
          set(weights, n, 0.1 * (n + 1));
          weight_values.push_back(get(weights, n));
        }
        const Tensor targets = integers(ids);
        const auto results = on_any_threads([&, rule = rule] {
          std::vector<Tensor> out;
          out.emplace_back(DType::f32, Shape{rows});
          out.emplace_back(DType::f32, Shape{rows});
          out.push_back(copy_of(logits));
          cross_entropy_forward(context, logits, targets, vocabulary, out[0]);
          cross_entropy_backward(context, out[2], targets, weights, vocabulary, out[1], rule);
          return out;
        });
        Doubles gradient, losses;
        reference::cross_entropy(doubles(logits), ids, weight_values, static_cast<int>(vocabulary),
                                 static_cast<int>(padded), &gradient);
        // The derivative of the rule at the logits as they are stored.
        for (size_t i = 0; i < gradient.size(); ++i) {
          const double ratio = rule.softcap > 0 ? get(logits, static_cast<int64_t>(i)) / rule.softcap : 0;
          gradient[i] *= rule.scale * (1 - ratio * ratio);
        }
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

// Cut into columns of several ranks, of which the last ones may hold nothing but padding. Only the logarithm
// of the normaliser is taken in another order; the logits' gradient is an exponential of it.
TEST_F(LossTest, PartsOfAVocabularyGiveTheWhole) {
  for (const DType dtype : training_types()) {
    for (const auto& [vocabulary, ranks, held] :
         {std::tuple<int64_t, int64_t, int64_t>{97, 2, 50}, {97, 3, 48}, {5003, 4, 1264}, {1, 2, 1}}) {
      const int64_t rows = 9;
      const LogitRule rule{.scale = 0.5f, .softcap = held > 48 ? 4.0f : 0.0f};
      const Tensor logits = random_tensor(dtype, {rows, held * ranks}, 1, 3.0);
      apply_logit_rule(context, rule, logits);
      std::vector<int> ids;
      Tensor weights(DType::f32, {rows});
      for (int n = 0; n < rows; ++n) {
        // The first and last token of each part, and no target.
        ids.push_back(n == 2 ? -1
                             : static_cast<int>(std::min(n / 2 * held + n % 2 * (held - 1), vocabulary - 1)));
        set(weights, n, 0.1 * (n + 1));
      }
      const Tensor targets = integers(ids), expected_losses(DType::f32, {rows}), expected = copy_of(logits);
      cross_entropy_backward(context, expected, targets, weights, vocabulary, expected_losses, rule);

      std::vector<Tensor> parts;
      const Tensor partials(DType::f32, {ranks, 2, rows});
      for (int64_t r = 0; r < ranks; ++r) {
        parts.emplace_back(dtype, Shape{rows, held});
        for (int64_t n = 0; n < rows; ++n) {
          for (int64_t j = 0; j < held; ++j)
            set(parts.back(), n * held + j, get(logits, n * held * ranks + r * held + j));
        }
        cross_entropy_partial(context, parts.back(), targets, {r * held, vocabulary},
                              partials.view().slice(r, r + 1).reshape({2, rows}));
      }
      const Tensor log_sum_exp(DType::f32, {rows}), losses(DType::f32, {rows});
      cross_entropy_combine(context, partials, targets, log_sum_exp, losses);
      expect_close(losses, doubles(expected_losses), 1e-5, "loss");
      for (int64_t r = 0; r < ranks; ++r) {
        cross_entropy_gradient(context, parts[static_cast<size_t>(r)], targets, weights, log_sum_exp,
                               {r * held, vocabulary}, rule);
        Doubles want;
        for (int64_t n = 0; n < rows; ++n) {
          for (int64_t j = 0; j < held; ++j) want.push_back(get(expected, n * held * ranks + r * held + j));
        }
        // The rounding of 16-bit gradients can fall to the other side.
        const double bound = dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 8e-3 : 1e-3;
        expect_close(parts[static_cast<size_t>(r)], want, bound, "gradient of the logits");
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
