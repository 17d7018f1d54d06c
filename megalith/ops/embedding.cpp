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

void check_added(const AddedEmbeddings& added, DType dtype, int64_t rows, int64_t columns,
                 const char* operation) {
  if (!added.position_table.empty()) {
    expect_table(added.position_table, dtype, columns, operation, "position_table");
    expect(added.positions, DType::i32, {rows}, operation, "positions");
    check_ids(added.positions, added.position_table.shape()[0], operation, "position");
  }
  if (!added.type_table.empty()) {
    expect_table(added.type_table, dtype, columns, operation, "type_table");
    if (added.types.empty()) return;
    expect(added.types, DType::i32, {rows}, operation, "types");
    check_ids(added.types, added.type_table.shape()[0], operation, "token type");
  }
}

// The rows of the tables that are added to row n; null without a table.
struct AddedRows {
  const AddedEmbeddings& added;

  void* position(int64_t n) const {
    if (added.position_table.empty()) return nullptr;
    return row_of(added.position_table, added.positions.data<int32_t>()[n]);
  }
  void* type(int64_t n) const {
    if (added.type_table.empty()) return nullptr;
    return row_of(added.type_table, added.types.empty() ? 0 : added.types.data<int32_t>()[n]);
  }
};

// y = dropout(scale * source(n) + what is added) for every row n.
template <class Source>
void embed_rows(const ExecContext& context, Source&& source, float scale, const AddedEmbeddings& added,
                const Dropout& dropout, TensorView y) {
  const int64_t rows = y.shape()[0], columns = y.columns();
  const cpu::TypedKernels& kernels = cpu::typed(y.dtype());
  const cpu::MaskSource mask = mask_source(dropout);
  ProfileScope scope(context, "embedding");
  const AddedRows rows_of{added};
  parallel_blocks(context, rows, rows_per_block(columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      kernels.embed_row(mask, source(n), scale, rows_of.position(n), rows_of.type(n), row_of(y, n), n,
                        columns);
    }
  });
}

}  // namespace

void embedding_forward(const ExecContext& context, TensorView tokens, TensorView token_table, float scale,
                       const AddedEmbeddings& added, const Dropout& dropout, TensorView y) {
  constexpr const char* kName = "embedding_forward";
  check(y.shape().rank() == 2, "{}: y {} must be a matrix", kName, to_string(y.shape()));
  const int64_t rows = y.shape()[0], columns = y.columns();
  expect_table(token_table, y.dtype(), columns, kName, "token_table");
  expect(tokens, DType::i32, {rows}, kName, "tokens");
  check_ids(tokens, token_table.shape()[0], kName, "token");
  check_added(added, y.dtype(), rows, columns, kName);
  const int32_t* token = tokens.data<int32_t>();
  embed_rows(
      context, [&](int64_t n) { return row_of(token_table, token[n]); }, scale, added, dropout, y);
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

void embedding_finish(const ExecContext& context, TensorView x, float scale, const AddedEmbeddings& added,
                      const Dropout& dropout, TensorView y) {
  constexpr const char* kName = "embedding_finish";
  check(y.shape().rank() == 2, "{}: y {} must be a matrix", kName, to_string(y.shape()));
  const int64_t rows = y.shape()[0], columns = y.columns();
  expect(x, y.dtype(), y.shape(), kName, "x");
  check_added(added, y.dtype(), rows, columns, kName);
  embed_rows(
      context, [&](int64_t n) { return row_of(x, n); }, scale, added, dropout, y);
}

void embedding_backward(const ExecContext& context, TensorView dy, TensorView tokens,
                        const VocabularyPart& part, float scale, const Dropout& dropout,
                        TensorView d_token_table, const AddedEmbeddings& d_added) {
  constexpr const char* kName = "embedding_backward";
  check(dy.shape().rank() == 2, "{}: dy {} must be a matrix", kName, to_string(dy.shape()));
  const int64_t rows = dy.shape()[0], columns = dy.columns();
  expect_table(d_token_table, DType::f32, columns, kName, "d_token_table");
  expect(tokens, DType::i32, {rows}, kName, "tokens");
  check_ids(tokens, part.vocabulary, kName, "token");
  check_added(d_added, DType::f32, rows, columns, kName);
  const cpu::TypedKernels& kernels = cpu::typed(dy.dtype());
  const cpu::MaskSource mask = mask_source(dropout);
  ProfileScope scope(context, "embedding");
  const int32_t* token = tokens.data<int32_t>();
  const AddedRows rows_of{d_added};
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
      if (scale != 1) cpu::typed(DType::f32).scale(sum + begin, scale, end - begin);
      cpu::kernels().element.add(sum + begin, static_cast<float*>(row_of(d_token_table, table_row)) + begin,
                                 end - begin);
    }
    for (int64_t n = 0; n < rows; ++n) {
      for (void* row : {rows_of.position(n), rows_of.type(n)}) {
        if (row != nullptr) kernels.add_row(mask, row_of(dy, n), static_cast<float*>(row), n, begin, end);
      }
    }
  });
}

}  // namespace megalith
