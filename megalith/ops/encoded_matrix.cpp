#include "megalith/ops/encoded_matrix.h"

#include <algorithm>

#include "megalith/ops/gemm.h"
#include "megalith/ops/parallel.h"

namespace megalith {

int64_t EncodedMatrix::block_elements() const {
  int64_t most = 1;
  for (const Group& group : groups) most = std::max(most, group.code.block_elements);
  return most;
}

void EncodedMatrix::decode(int64_t row, int64_t first, int64_t count, float* out) const {
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return row < g.end; });
  const RowCode& code = group->code;
  code.decode(rows[static_cast<size_t>(row)] + first / code.block_elements * code.block_bytes, count, out);
}

void linear_forward(const ExecContext& context, TensorView x, const EncodedMatrix& w, TensorView bias,
                    TensorView y) {
  constexpr const char* kName = "linear_forward";
  const int64_t f = static_cast<int64_t>(w.rows.size());
  check(!x.empty() && x.shape().rank() == 2, "{}: x must be a matrix", kName);
  const int64_t n = x.shape()[0];
  expect(x, DType::f32, {n, w.columns}, kName, "x");
  expect(y, DType::f32, {n, f}, kName, "y");
  if (!bias.empty()) expect(bias, DType::f32, {f}, kName, "bias");
  ProfileScope scope(context, "matmul",
                     2.0 * static_cast<double>(n) * static_cast<double>(w.columns) * static_cast<double>(f));
  gemm(context, n, f, w.columns, {x.raw(), DType::f32, w.columns},
       {.dtype = DType::f32, .stride = w.columns, .encoded = &w},
       {y.raw(), DType::f32, f, bias.empty() ? nullptr : bias.data<float>()});
}

void look_up(const ExecContext& context, TensorView ids, const EncodedMatrix& table, TensorView y) {
  const int64_t n = ids.elements();
  expect(ids, DType::i32, {n}, "look_up", "ids");
  expect(y, DType::f32, {n, table.columns}, "look_up", "y");
  const int32_t* id = ids.data<int32_t>();
  const int64_t rows = static_cast<int64_t>(table.rows.size());
  for (int64_t i = 0; i < n; ++i) {
    check(id[i] >= 0 && id[i] < rows, "look_up: token id {} is not in the table of {} rows", id[i], rows);
  }
  ProfileScope scope(context, "embedding");
  parallel_blocks(context, n, rows_per_block(table.columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      table.decode(id[i], 0, table.columns, y.data<float>() + i * table.columns);
    }
  });
}

}  // namespace megalith
