#include "megalith/model/stored_copy.h"

#include <cstring>

#include "megalith/ops/elementwise.h"

namespace megalith {

namespace {

// Where element (row, column) of the parameter stands in the file: at row * stored_row + column * step.
struct Strides {
  int64_t rows, columns, row_step, column_step;

  Strides(const StoredTensor& stored, TensorView rows_view)
      : rows(stored.rows),
        columns(rows_view.shape().rank() == 2 ? rows_view.columns() : 1),
        row_step(stored.transposed ? 1 : columns),
        column_step(stored.transposed ? stored.rows + stored.unused_rows : 1) {}
};

bool is_plain(const StoredTensor& stored) {
  return !stored.transposed && stored.order == RowOrder::as_ours && stored.added == 0;
}

}  // namespace

void read_stored(const ExecContext& exec, const StoredTensor& stored, TensorView from, TensorView rows) {
  const Strides s(stored, rows);
  if (is_plain(stored) && from.dtype() == rows.dtype()) {
    const size_t skipped = static_cast<size_t>(stored.unused_rows * s.columns) * size_of(from.dtype());
    std::memcpy(rows.raw(), static_cast<const std::byte*>(from.raw()) + skipped, rows.bytes());
    return;
  }
  dispatch_weight(from.dtype(), [&]<class From>(std::type_identity<From>) {
    dispatch_float(rows.dtype(), [&]<class To>(std::type_identity<To>) {
      const From* in = static_cast<const From*>(from.raw());
      To* out = rows.data<To>();
#pragma omp parallel for num_threads(exec.threads) schedule(static)
      for (int64_t r = 0; r < s.rows; ++r) {
        const From* row = in + (stored.unused_rows + stored.stored_row(r)) * s.row_step;
        for (int64_t c = 0; c < s.columns; ++c) {
          out[r * s.columns + c] = static_cast<To>(static_cast<float>(row[c * s.column_step]) + stored.added);
        }
      }
    });
  });
}

void write_stored(const ExecContext& exec, const StoredTensor& stored, TensorView rows, TensorView to) {
  const Strides s(stored, rows);
  if (stored.unused_rows > 0) fill_zero(exec, to);
  dispatch_float(rows.dtype(), [&]<class From>(std::type_identity<From>) {
    dispatch_float(to.dtype(), [&]<class To>(std::type_identity<To>) {
      const From* in = rows.data<From>();
      To* out = to.data<To>();
#pragma omp parallel for num_threads(exec.threads) schedule(static)
      for (int64_t r = 0; r < s.rows; ++r) {
        To* row = out + (stored.unused_rows + stored.stored_row(r)) * s.row_step;
        for (int64_t c = 0; c < s.columns; ++c) {
          row[c * s.column_step] = static_cast<To>(static_cast<float>(in[r * s.columns + c]) - stored.added);
        }
      }
    });
  });
}

}  // namespace megalith
