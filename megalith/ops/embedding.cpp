#include "megalith/ops/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/mask_source.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

void check_ids(const TensorView& ids, int64_t rows, const char* operation, const char* what) {
  const int32_t* id = ids.data<int32_t>();
  for (int64_t n = 0; n < ids.elements(); ++n) {
    check(id[n] >= 0 && id[n] < rows, "{}: {} {} at row {} is outside its table of {} rows", operation, what,
          id[n], n, rows);
  }
}

void expect_table(const TensorView& table, DType dtype, int64_t columns, const char* operation,
                  const char* what) {
  check(!table.empty() && table.shape().rank() == 2, "{}: {} must be a matrix", operation, what);
  expect(table, dtype, {table.shape()[0], columns}, operation, what);
}

// Positions and their table; both may be absent.
void check_positions(const TensorView& positions, const TensorView& table, DType dtype, int64_t rows,
                     int64_t columns, const char* operation, const char* what) {
  if (table.empty()) return;
  expect_table(table, dtype, columns, operation, what);
  expect(positions, DType::i32, {rows}, operation, "positions");
  check_ids(positions, table.shape()[0], operation, "position");
}

// y = dropout(source(n) + position embedding) for every row n.
template <class Source>
void embed_rows(const ExecContext& context, Source&& source, TensorView positions, TensorView position_table,
                const Dropout& dropout, TensorView y) {
  const int64_t rows = y.shape()[0], columns = y.columns();
  const cpu::TypedKernels& kernels = cpu::typed(y.dtype());
  const cpu::MaskSource mask = mask_source(dropout);
  ProfileScope scope(context, "embedding");
  const int32_t* position = position_table.empty() ? nullptr : positions.data<int32_t>();
  parallel_blocks(context, rows, rows_per_block(columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      kernels.embed_row(mask, source(n), position == nullptr ? nullptr : row_of(position_table, position[n]),
                        row_of(y, n), n, columns);
    }
  });
}

}  // namespace

void embedding_forward(const ExecContext& context, TensorView tokens, TensorView positions,
                       TensorView token_table, TensorView position_table, const Dropout& dropout,
                       TensorView y) {
  constexpr const char* kName = "embedding_forward";
  check(y.shape().rank() == 2, "{}: y {} must be a matrix", kName, to_string(y.shape()));
  const int64_t rows = y.shape()[0], columns = y.columns();
  expect_table(token_table, y.dtype(), columns, kName, "token_table");
  expect(tokens, DType::i32, {rows}, kName, "tokens");
  check_ids(tokens, token_table.shape()[0], kName, "token");
  check_positions(positions, position_table, y.dtype(), rows, columns, kName, "position_table");
  const int32_t* token = tokens.data<int32_t>();
  embed_rows(
      context, [&](int64_t n) { return row_of(token_table, token[n]); }, positions, position_table, dropout,
      y);
}

void embedding_lookup_part(const ExecContext& context, TensorView tokens, TensorView token_table,
                           const VocabularyPart& part, TensorView y) {
  constexpr const char* kName = "embedding_lookup_part";
  check(y.shape().rank() == 2, "{}: y {} must be a matrix", kName, to_string(y.shape()));
  const int64_t rows = y.shape()[0], columns = y.columns();
  expect_table(token_table, y.dtype(), columns, kName, "token_table");
  expect(tokens, DType::i32, {rows}, kName, "tokens");
  check_ids(tokens, part.vocabulary, kName, "token");
  ProfileScope scope(context, "embedding");
  const int32_t* token = tokens.data<int32_t>();
  const size_t bytes = static_cast<size_t>(columns) * size_of(y.dtype());
  parallel_blocks(context, rows, rows_per_block(columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = part.find(token[n], token_table.shape()[0]);
      if (row < 0) {
        std::memset(row_of(y, n), 0, bytes);
      } else {
        std::memcpy(row_of(y, n), row_of(token_table, row), bytes);
      }
    }
  });
}

void embedding_finish(const ExecContext& context, TensorView x, TensorView positions,
                      TensorView position_table, const Dropout& dropout, TensorView y) {
  constexpr const char* kName = "embedding_finish";
  check(y.shape().rank() == 2, "{}: y {} must be a matrix", kName, to_string(y.shape()));
  const int64_t rows = y.shape()[0], columns = y.columns();
  expect(x, y.dtype(), y.shape(), kName, "x");
  check_positions(positions, position_table, y.dtype(), rows, columns, kName, "position_table");
  embed_rows(
      context, [&](int64_t n) { return row_of(x, n); }, positions, position_table, dropout, y);
}

void embedding_backward(const ExecContext& context, TensorView dy, TensorView tokens,
                        const VocabularyPart& part, TensorView positions, const Dropout& dropout,
                        TensorView d_token_table, TensorView d_position_table) {
  constexpr const char* kName = "embedding_backward";
  check(dy.shape().rank() == 2, "{}: dy {} must be a matrix", kName, to_string(dy.shape()));
  const int64_t rows = dy.shape()[0], columns = dy.columns();
  expect_table(d_token_table, DType::f32, columns, kName, "d_token_table");
  expect(tokens, DType::i32, {rows}, kName, "tokens");
  check_ids(tokens, part.vocabulary, kName, "token");
  check_positions(positions, d_position_table, DType::f32, rows, columns, kName, "d_position_table");
  const cpu::TypedKernels& kernels = cpu::typed(dy.dtype());
  const cpu::MaskSource mask = mask_source(dropout);
  ProfileScope scope(context, "embedding");
  const int32_t* token = tokens.data<int32_t>();
  const int32_t* position = d_position_table.empty() ? nullptr : positions.data<int32_t>();
  ArenaScope arena(context.workspace);
  float* sum = context.workspace.allocate(DType::f32, {columns}).data<float>();
  int32_t* by_token = context.workspace.allocate(DType::i32, {rows}).data<int32_t>();
  std::iota(by_token, by_token + rows, 0);
  std::sort(by_token, by_token + rows,
            [&](int32_t a, int32_t b) { return token[a] != token[b] ? token[a] < token[b] : a < b; });
  // Rows may repeat, so threads share out columns: every table entry is summed in the order of the rows.
  constexpr int64_t kColumns = 64;
  parallel_blocks(context, columns, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t at = 0; at < rows;) {
      const int32_t id = token[by_token[at]];
      const int64_t table_row = part.find(id, d_token_table.shape()[0]);
      std::fill(sum + begin, sum + end, 0.0f);
      for (; at < rows && token[by_token[at]] == id; ++at) {
        const int64_t n = by_token[at];
        if (table_row >= 0) kernels.add_row(mask, row_of(dy, n), sum, n, begin, end);
      }
      if (table_row < 0) continue;
      cpu::kernels().element.add(sum + begin, static_cast<float*>(row_of(d_token_table, table_row)) + begin,
                                 end - begin);
    }
    for (int64_t n = 0; position != nullptr && n < rows; ++n) {
      kernels.add_row(mask, row_of(dy, n), static_cast<float*>(row_of(d_position_table, position[n])), n,
                      begin, end);
    }
  });
}

}  // namespace megalith
