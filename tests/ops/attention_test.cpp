#include "megalith/ops/attention.h"

#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class AttentionTest : public OpTest {
 protected:
  struct Result {
    Tensor out, log_sum_exp, dqkv;
  };

  Result run(const AttentionShape& shape, const TensorView& qkv, const TensorView& starts,
             const Dropout& dropout, const TensorView& dout) {
    Result result{Tensor(qkv.dtype(), {shape.batch * shape.tokens, shape.heads * shape.head_size}),
                  Tensor(DType::f32, {shape.batch, shape.heads, shape.tokens}),
                  Tensor(qkv.dtype(), qkv.shape())};
    attention_forward(context, shape, qkv, starts, dropout, result.out, result.log_sum_exp);
    attention_backward(context, shape, qkv, starts, dropout, result.out, result.log_sum_exp, dout,
                       result.dqkv);
    return result;
  }
};

AttentionShape shape_of(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t size) {
  return {batch, tokens, heads, kv_heads, size, static_cast<float>(1 / std::sqrt(static_cast<double>(size)))};
}

/// Documents of uneven lengths, other ones in every batch row.
std::vector<int> document_starts(const AttentionShape& shape) {
  std::vector<int> starts;
  for (int64_t b = 0; b < shape.batch; ++b) {
    int start = 0, length = 5 + static_cast<int>(b) * 3;
    for (int t = 0; t < shape.tokens; ++t) {
      if (t - start >= length) start = t, length = length * 3 % 71 + 1;
      starts.push_back(start);
    }
  }
  return starts;
}

Tensor starts_tensor(const AttentionShape& shape, const std::vector<int>& starts) {
  Tensor flat = integers(starts), x(DType::i32, {shape.batch, shape.tokens});
  std::memcpy(x.view().raw(), flat.view().raw(), flat.view().bytes());
  return x;
}

struct Size {
  int64_t batch, tokens, heads, kv_heads, head_size;
};

/// Which keys a query sees, with which logits.
struct Rule {
  std::string name;
  bool documents = false, causal = true;
  int64_t window = 0;
  float softcap = 0;
  bool slopes = false;
  float dropout = 0;
};

std::vector<Rule> rules() {
  return {{.name = "causal"},
          {.name = "documents", .documents = true},
          {.name = "dropout", .dropout = 0.2f},
          {.name = "window", .window = 70},
          {.name = "window, documents, dropout", .documents = true, .window = 3, .dropout = 0.2f},
          {.name = "soft cap", .softcap = 3},
          {.name = "slopes, dropout", .slopes = true, .dropout = 0.2f},
          {.name = "both ways", .causal = false, .dropout = 0.2f},
          {.name = "both ways, documents, window, soft cap",
           .documents = true,
           .causal = false,
           .window = 9,
           .softcap = 3},
          {.name = "both ways, slopes, window", .causal = false, .window = 20, .slopes = true}};
}

/// `shape` under a rule; `slopes` owns what it points at.
AttentionShape with_rule(AttentionShape shape, const Rule& rule, Tensor& slopes) {
  shape.causal = rule.causal;
  shape.window = rule.window;
  shape.softcap = rule.softcap;
  if (!rule.slopes) return shape;
  const auto values = reference::alibi_slopes(static_cast<int>(shape.heads));
  slopes = Tensor(DType::f32, {shape.heads});
  for (int64_t h = 0; h < shape.heads; ++h) set(slopes, h, values[static_cast<size_t>(h)]);
  shape.slopes = slopes;
  return shape;
}

}  // namespace

// Logits are sums of D products, outputs and gradients sums of T (times D for the queries' and keys' ones).
// With dot products in bf16, probabilities and their gradients are rounded to bf16 before they multiply.
TEST_F(AttentionTest, EqualsTheOracle) {
  const std::vector<Size> sizes = {{1, 1, 1, 1, 16},   {2, 7, 2, 1, 20},  {1, 65, 3, 3, 33},
                                   {2, 130, 4, 2, 64}, {1, 97, 6, 2, 80}, {1, 200, 2, 1, 128},
                                   {1, 50, 1, 1, 256}, {1, 129, 2, 2, 1}};
  uint64_t seed = 0;
  for (const DType dtype : training_types()) {
    for (const Size& size : sizes) {
      for (const Rule& rule : rules()) {
        Tensor slopes;
        const AttentionShape shape = with_rule(
            shape_of(size.batch, size.tokens, size.heads, size.kv_heads, size.head_size), rule, slopes);
        const Tensor qkv = random_tensor(dtype, {shape.batch * shape.tokens, shape.packed_columns()}, ++seed);
        const Tensor dout =
            random_tensor(dtype, {shape.batch * shape.tokens, shape.heads * shape.head_size}, ++seed);
        const Dropout dropout{.probability = rule.dropout, .key = 99, .stream = 5, .first_position = 1000};
        const std::vector<int> starts = rule.documents ? document_starts(shape) : std::vector<int>();
        const Tensor starts_view = rule.documents ? starts_tensor(shape, starts) : Tensor();
        const auto results = on_any_threads([&] {
          Result result = run(shape, qkv, starts_view, dropout, dout);
          std::vector<Tensor> out;
          out.push_back(std::move(result.out));
          out.push_back(std::move(result.dqkv));
          out.push_back(std::move(result.log_sum_exp));
          return out;
        });
        reference::AttentionShape oracle{static_cast<int>(shape.batch),
                                         static_cast<int>(shape.tokens),
                                         static_cast<int>(shape.heads),
                                         static_cast<int>(shape.kv_heads),
                                         static_cast<int>(shape.head_size),
                                         shape.scale,
                                         rule.causal,
                                         static_cast<int>(rule.window),
                                         rule.softcap,
                                         {}};
        if (rule.slopes) oracle.slopes = reference::alibi_slopes(static_cast<int>(shape.heads));
        reference::AttentionMask mask{.keep = {}, .starts = starts};
        if (dropout.active()) {
          for (int64_t b = 0; b < shape.batch; ++b) {
            for (int64_t h = 0; h < shape.heads; ++h) {
              for (int64_t t = 0; t < shape.tokens; ++t) {
                for (int64_t k = 0; k < shape.tokens; ++k) {
                  mask.keep.push_back(dropout.keeps(static_cast<uint64_t>(b * shape.tokens + t),
                                                    static_cast<uint64_t>(h * shape.tokens + k))
                                          ? dropout.scale()
                                          : 0);
                }
              }
            }
          }
        }
        Doubles probabilities;
        const Doubles out = reference::attention(doubles(qkv), oracle, mask, probabilities);
        const Doubles dqkv =
            reference::attention_backward(doubles(dout), doubles(qkv), oracle, mask, probabilities);
        const std::string what = std::to_string(shape.tokens) + " tokens, heads of " +
                                 std::to_string(shape.head_size) + ", " + std::string(name(dtype)) + ", " +
                                 rule.name;
        const double operand = dtype == DType::bf16 ? rounding_error(dtype) : 0;
        const double chain = static_cast<double>(shape.head_size + shape.tokens) * kFloatError;
        const double most = largest(doubles(qkv)), gain = dropout.active() ? dropout.scale() : 1;
        expect_close(results[0], out, (chain * 2 + operand) * most * gain, "out of " + what);
        // The output enters the gradient rounded to its type: an error of u |dout| |out| D in every
        // logit's.
        const double error = 4 * chain + 2 * operand + 2 * rounding_error(dtype);
        const double group = static_cast<double>(shape.heads / shape.kv_heads);
        expect_close(results[1], dqkv, error * 4 * std::sqrt(group) * std::max(largest(dqkv), most),
                     "dqkv of " + what);
      }
    }
  }
}

TEST_F(AttentionTest, RepeatsBitForBit) {
  const AttentionShape shape = shape_of(2, 150, 4, 2, 64);
  const Dropout dropout{.probability = 0.1f, .key = 3, .stream = 1, .first_position = 0};
  for (const DType dtype : training_types()) {
    const Tensor qkv = random_tensor(dtype, {300, shape.packed_columns()}, 1),
                 dout = random_tensor(dtype, {300, 256}, 2);
    const Result first = run(shape, qkv, {}, dropout, dout), again = run(shape, qkv, {}, dropout, dout);
    EXPECT_TRUE(same_bits(first.out, again.out));
    EXPECT_TRUE(same_bits(first.dqkv, again.dqkv));
  }
}

// A document's outputs and gradients are the same bits whatever its neighbours and the other rows hold.
TEST_F(AttentionTest, DocumentsDoNotSeeEachOther) {
  for (const Rule& rule : rules()) {
    Tensor slopes;
    const AttentionShape shape = with_rule(shape_of(2, 190, 4, 2, 32), rule, slopes);
    const int64_t begin = 37, end = 121;
    std::vector<int> starts;
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int t = 0; t < shape.tokens; ++t) starts.push_back(t < begin ? 0 : t < end ? begin : end);
    }
    const Tensor starts_view = starts_tensor(shape, starts);
    for (const DType dtype : training_types()) {
      const Tensor qkv = random_tensor(dtype, {380, shape.packed_columns()}, 1),
                   dout = random_tensor(dtype, {380, 128}, 2);
      const Tensor other = random_tensor(dtype, {380, shape.packed_columns()}, 3, 9),
                   other_dout = random_tensor(dtype, {380, 128}, 4, 9);
      for (const int64_t edge : {begin, end}) {
        std::memcpy(
            other.view().slice(edge == begin ? begin : 190 + begin, edge == begin ? end : 190 + end).raw(),
            qkv.view().slice(edge == begin ? begin : 190 + begin, edge == begin ? end : 190 + end).raw(),
            qkv.view().slice(begin, end).bytes());
        std::memcpy(other_dout.view().slice(begin, end).raw(), dout.view().slice(begin, end).raw(),
                    dout.view().slice(begin, end).bytes());
      }
      const Result a = run(shape, qkv, starts_view, {}, dout),
                   b = run(shape, other, starts_view, {}, other_dout);
      EXPECT_TRUE(same_bits(a.out.view().slice(begin, end), b.out.view().slice(begin, end))) << name(dtype);
      EXPECT_TRUE(same_bits(a.dqkv.view().slice(begin, end), b.dqkv.view().slice(begin, end)))
          << name(dtype) << ", " << rule.name;
    }
  }
}

TEST_F(AttentionTest, CacheGivesTheSameBitsInAnyChunks) {
  for (const DType dtype : training_types()) {
    for (const Rule& rule : rules()) {
      if (!rule.causal || rule.documents || rule.dropout > 0) continue;
      for (const Size& size : {Size{1, 150, 4, 2, 64}, Size{1, 70, 3, 3, 33}, Size{1, 90, 71, 1, 20}}) {
        const int64_t tokens = size.tokens, slots = tokens + 9;
        Tensor slopes;
        AttentionShape shape =
            with_rule(shape_of(1, tokens, size.heads, size.kv_heads, size.head_size), rule, slopes);
        const Tensor qkv = random_tensor(dtype, {tokens, shape.packed_columns()}, 1);
        const Shape cache_shape{slots, shape.kv_heads * shape.head_size},
            out_shape{tokens, shape.heads * shape.head_size};
        const auto in_chunks = [&](int64_t chunk) {
          Tensor keys(dtype, cache_shape), values(dtype, cache_shape), out(dtype, out_shape);
          for (int64_t past = 0; past < tokens; past += chunk) {
            const int64_t last = std::min(tokens, past + chunk);
            shape.tokens = last - past;
            attention_with_cache(context, shape, qkv.view().slice(past, last), past, keys, values,
                                 out.view().slice(past, last));
          }
          shape.tokens = tokens;
          return out;
        };
        const auto whole = on_any_threads([&] {
          std::vector<Tensor> out;
          out.push_back(in_chunks(tokens));
          return out;
        });
        for (const int64_t chunk : {1, 7, 64})
          EXPECT_TRUE(same_bits(in_chunks(chunk), whole[0])) << chunk << " at a time";
        // And those of training.
        Tensor out(dtype, out_shape), log_sum_exp(DType::f32, {1, shape.heads, tokens});
        attention_forward(context, shape, qkv, {}, {}, out, log_sum_exp);
        EXPECT_TRUE(same_bits(out, whole[0])) << name(dtype) << ", " << rule.name;
      }
    }
  }
}

TEST_F(AttentionTest, ErrorsSayWhatIsWrong) {
  const AttentionShape shape = shape_of(1, 4, 3, 2, 8);
  const Tensor qkv(DType::f32, {4, 56}), out(DType::f32, {4, 24}), log_sum_exp(DType::f32, {1, 3, 4});
  try {
    attention_forward(context, shape, qkv, {}, {}, out, log_sum_exp);
    FAIL() << "accepted heads that cannot be shared";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "attention_forward: 3 heads cannot share 2 key/value heads");
  }
  const AttentionShape good = shape_of(1, 4, 3, 3, 8);
  const Tensor packed(DType::f32, {4, 72}), starts = starts_tensor(good, {0, 0, 3, 0});
  try {
    attention_forward(context, good, packed, starts, {}, out, log_sum_exp);
    FAIL() << "accepted a document that starts after its token";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "attention_forward: document start 3 of token 2 in batch row 0 lies outside 0 .. 2");
  }
  EXPECT_THROW(attention_with_cache(context, good, packed, 0, Tensor(DType::f32, {3, 24}),
                                    Tensor(DType::f32, {3, 24}), out),
               Error);
  AttentionShape both_ways = good;
  both_ways.causal = false;
  EXPECT_THROW(attention_with_cache(context, both_ways, packed, 0, Tensor(DType::f32, {4, 24}),
                                    Tensor(DType::f32, {4, 24}), out),
               Error);
  AttentionShape slopes = good;
  slopes.slopes = integers({1, 2, 3});
  EXPECT_THROW(attention_forward(context, slopes, packed, {}, {}, out, log_sum_exp), Error);
}

}  // namespace megalith::test
