#include "megalith/ops/dropout.h"

#include "megalith/ops/embedding.h"
#include "tests/ops/support.h"

namespace megalith::test {

namespace {

class DropoutTest : public OpTest {};

Dropout example(float probability) {
  return {.probability = probability,
          .key = 0x1234567890abcdefull,
          .stream = 77,
          .first_position = 0x1fffffff0ull};
}

}  // namespace

TEST_F(DropoutTest, MasksAreThoseOfTheGenerator) {
  for (const DType dtype : training_types()) {
    for (const float probability : {0.0f, 0.1f, 0.75f}) {
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {5, 33}, {40, 771}}) {
        const Dropout dropout = example(probability);
        const Tensor x = random_tensor(dtype, {rows, columns}, 1),
                     delta = random_tensor(dtype, {rows, columns}, 2);
        const auto results = on_any_threads([&] {
          std::vector<Tensor> out;
          out.emplace_back(dtype, Shape{rows, columns});
          out.emplace_back(dtype, Shape{rows, columns});
          out.push_back(copy_of(x));
          out.push_back(copy_of(delta));
          residual_add(context, x, delta, dropout, out[0]);
          dropout_backward(context, delta, dropout, out[1]);
          residual_add(context, out[2], delta, dropout, out[2]);
          dropout_backward(context, out[3], dropout, out[3]);
          return out;
        });
        Doubles sum(static_cast<size_t>(rows * columns)), back(sum.size());
        for (int64_t i = 0; i < rows * columns; ++i) {
          const bool kept = !dropout.active() || dropout.keeps(static_cast<uint64_t>(i / columns),
                                                               static_cast<uint64_t>(i % columns));
          back[static_cast<size_t>(i)] =
              kept ? get(delta, i) * (dropout.active() ? dropout.scale() : 1.0f) : 0;
          sum[static_cast<size_t>(i)] = get(x, i) + back[static_cast<size_t>(i)];
        }
        expect_close(results[0], sum, 2 * kFloatError * 20, "residual_add");
        expect_close(results[1], back, 2 * kFloatError * 20, "dropout_backward");
        EXPECT_TRUE(same_bits(results[0], results[2]));
        EXPECT_TRUE(same_bits(results[1], results[3]));
      }
    }
  }
}

TEST_F(DropoutTest, MaskBelongsToThePosition) {
  const Dropout whole = example(0.5f);
  Dropout later = whole;
  later.first_position += 3;
  const Tensor ones = random_tensor(DType::f32, {8, 40}, 1), zero(DType::f32, {8, 40});
  Tensor all(DType::f32, {8, 40}), part(DType::f32, {5, 40});
  residual_add(context, zero, ones, whole, all);
  residual_add(context, zero.view().slice(0, 5), ones.view().slice(3, 8), later, part);
  EXPECT_TRUE(same_bits(all.view().slice(3, 8), part));
}

// A rank with a share of the attention heads draws the masks that belong to them.
TEST_F(DropoutTest, AShareOfTheElementsDrawsTheirMasks) {
  const Dropout whole = example(0.4f);
  for (const int64_t first : {1, 8, 30}) {
    Dropout share = whole;
    share.first_element = static_cast<uint64_t>(first);
    const int64_t columns = 70, own = columns - first;
    const Tensor ones = random_tensor(DType::f32, {6, columns}, 1), zero(DType::f32, {6, own});
    Tensor all(DType::f32, {6, columns}), part(DType::f32, {6, own}), mine(DType::f32, {6, own});
    for (int64_t n = 0; n < 6; ++n) {
      for (int64_t j = 0; j < own; ++j) set(mine, n * own + j, get(ones, n * columns + first + j));
    }
    dropout_backward(context, ones, whole, all);
    residual_add(context, zero, mine, share, part);
    for (int64_t n = 0; n < 6; ++n) {
      for (int64_t j = 0; j < own; ++j) {
        EXPECT_EQ(get(part, n * own + j), get(all, n * columns + first + j)) << n << ", " << j;
        EXPECT_EQ(share.keeps(static_cast<uint64_t>(n), static_cast<uint64_t>(j)),
                  whole.keeps(static_cast<uint64_t>(n), static_cast<uint64_t>(first + j)));
      }
    }
  }
}

TEST_F(DropoutTest, EmbeddingEqualsItsDefinition) {
  const int64_t rows = 90, vocabulary = 11, places = 23;
  for (const DType dtype : training_types()) {
    for (const int64_t columns : {1, 64, 331}) {
      for (const float probability : {0.0f, 0.3f}) {
        for (const bool with_positions : {true, false}) {
          const Dropout dropout = example(probability);
          std::vector<int> token_ids, position_ids;
          for (int i = 0; i < rows; ++i) token_ids.push_back(i * 7 % 11), position_ids.push_back(i % 23);
          const Tensor tokens = integers(token_ids), positions = integers(position_ids);
          const Tensor token_table = random_tensor(dtype, {vocabulary, columns}, 1);
          const Tensor position_table =
              with_positions ? random_tensor(dtype, {places, columns}, 2) : Tensor();
          // Types of their own with positions, else all of type 0.
          const float scale = columns == 64 ? 2.5f : 1.0f;
          const Tensor type_table = random_tensor(dtype, {2, columns}, 6);
          std::vector<int> type_ids;
          for (int i = 0; i < rows; ++i) type_ids.push_back(with_positions ? i / 3 % 2 : 0);
          const Tensor types = with_positions ? integers(type_ids) : Tensor();
          const AddedEmbeddings added{positions, position_table, types, type_table};
          const Tensor dy = random_tensor(dtype, {rows, columns}, 3);
          const auto results = on_any_threads([&] {
            std::vector<Tensor> out;
            out.emplace_back(dtype, Shape{rows, columns});
            out.push_back(random_tensor(DType::f32, {vocabulary, columns}, 4));
            out.push_back(random_tensor(DType::f32, {places, columns}, 5));
            out.push_back(random_tensor(DType::f32, {2, columns}, 7));
            embedding_forward(context, tokens, token_table, scale, added, dropout, out[0]);
            embedding_backward(context, dy, tokens, {0, vocabulary}, scale, dropout, out[1],
                               {positions, with_positions ? out[2].view() : TensorView(), types, out[3]});
            return out;
          });
          Doubles y(static_cast<size_t>(rows * columns));
          Doubles dtoken = doubles(random_tensor(DType::f32, {vocabulary, columns}, 4));
          Doubles dposition = doubles(random_tensor(DType::f32, {places, columns}, 5));
          Doubles dtype_table = doubles(random_tensor(DType::f32, {2, columns}, 7));
          for (int64_t n = 0; n < rows; ++n) {
            for (int64_t j = 0; j < columns; ++j) {
              const double factor = !dropout.active() ? 1
                                    : dropout.keeps(static_cast<uint64_t>(n), static_cast<uint64_t>(j))
                                        ? dropout.scale()
                                        : 0;
              const int64_t token = token_ids[static_cast<size_t>(n)] * columns + j,
                            place = position_ids[static_cast<size_t>(n)] * columns + j,
                            type = type_ids[static_cast<size_t>(n)] * columns + j;
              y[static_cast<size_t>(n * columns + j)] =
                  factor * (scale * get(token_table, token) + get(type_table, type) +
                            (with_positions ? get(position_table, place) : 0));
              dtoken[static_cast<size_t>(token)] += scale * factor * get(dy, n * columns + j);
              dtype_table[static_cast<size_t>(type)] += factor * get(dy, n * columns + j);
              if (with_positions) dposition[static_cast<size_t>(place)] += factor * get(dy, n * columns + j);
            }
          }
          expect_close(results[0], y, 4 * kFloatError * 10, "embedding");
          expect_close(results[1], dtoken, 12 * kFloatError * 50, "d_token_table");
          expect_close(results[2], dposition, 12 * kFloatError * 50, "d_position_table");
          expect_close(results[3], dtype_table, 90 * kFloatError * 50, "d_type_table");
        }
      }
    }
  }
}

TEST_F(DropoutTest, EmbeddingInPartsGivesTheSameBits) {
  const int64_t rows = 40, vocabulary = 11, held = 4, columns = 70;
  std::vector<int> token_ids, position_ids;
  for (int i = 0; i < rows; ++i) token_ids.push_back(i * 7 % 11), position_ids.push_back(i % 23);
  const Tensor tokens = integers(token_ids), positions = integers(position_ids);
  const Dropout dropout = example(0.3f);
  for (const DType dtype : training_types()) {
    const Tensor table = random_tensor(dtype, {3 * held, columns}, 1);
    const Tensor position_table = random_tensor(dtype, {23, columns}, 2);
    const Tensor dy = random_tensor(dtype, {rows, columns}, 3);
    Tensor whole(dtype, {rows, columns}), sum(dtype, {rows, columns}), part(dtype, {rows, columns});
    Tensor d_whole(DType::f32, {3 * held, columns}), d_parts(DType::f32, {3 * held, columns});
    const AddedEmbeddings added{positions, position_table, {}, {}};
    embedding_forward(context, tokens, table, 3, added, dropout, whole);
    embedding_backward(context, dy, tokens, {0, vocabulary}, 3, dropout, d_whole, {});
    for (int64_t first = 0; first < 3 * held; first += held) {
      embedding_lookup_part(context, tokens, table.view().slice(first, first + held), {first, vocabulary},
                            part);
      residual_add(context, sum, part, {}, sum);
      embedding_backward(context, dy, tokens, {first, vocabulary}, 3, dropout,
                         d_parts.view().slice(first, first + held), {});
    }
    embedding_finish(context, sum, 3, added, dropout, sum);
    EXPECT_TRUE(same_bits(sum, whole));
    EXPECT_TRUE(same_bits(d_parts, d_whole));
  }
}

TEST_F(DropoutTest, EmbeddingErrorsNameTheRow) {
  const Tensor table(DType::f32, {5, 4}), y(DType::f32, {3, 4}), tokens = integers({0, 5, 1}),
                                                                 none = integers({0, 0, 0});
  try {
    embedding_forward(context, tokens, table, 1, {}, {}, y);
    FAIL() << "accepted an id outside the table";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "embedding_forward: token 5 at row 1 is outside its table of 5 rows");
  }
  try {
    const Tensor places = integers({0, 1, -1});
    embedding_backward(context, y, none, {0, 5}, 1, {}, table, {places, table, {}, {}});
    FAIL() << "accepted a negative position";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "embedding_backward: position -1 at row 2 is outside its table of 5 rows");
  }
}

}  // namespace megalith::test
