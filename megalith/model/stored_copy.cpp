#include "megalith/model/stored_copy.h"

#include <algorithm>
#include <cstring>

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

namespace {

// Elements [first, first + count) of a row of ours.
void read_elements(const Parameter& parameter, int64_t row, int64_t first, int64_t count, float* out) {
  if (parameter.encoded != nullptr) {
    if (first == 0 && count == parameter.shape[1]) return parameter.encoded->decode(row, 0, count, out);
    std::vector<float> whole(static_cast<size_t>(parameter.shape[1]));
    parameter.encoded->decode(row, 0, parameter.shape[1], whole.data());
    std::copy_n(whole.begin() + first, count, out);
    return;
  }
  const int64_t columns = parameter.shape.rank() == 2 ? parameter.shape[1] : 1;
  dispatch_float(parameter.value.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = parameter.value.data<T>() + row * columns + first;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]);
  });
}

}  // namespace

StoredRows::StoredRows(const Parameter& parameter, int64_t first, const StoredTensor& stored)
    : parameter_(parameter), first_(first), stored_(stored) {
  const int64_t all = stored.rows + stored.unused_rows;
  ours_.assign(static_cast<size_t>(all), -1);
  for (int64_t row = 0; row < stored.rows; ++row) {
    ours_[static_cast<size_t>(stored.unused_rows + stored.stored_row(row))] = row;
  }
  if (parameter.shape.rank() == 1) {
    rows_ = 1;
    columns_ = all;
  } else {
    rows_ = stored.transposed ? parameter.shape[1] : all;
    columns_ = stored.transposed ? all : parameter.shape[1];
  }
}

void StoredRows::read(int64_t row, float* out) const {
  const bool by_element = stored_.transposed || parameter_.shape.rank() == 1;
  if (!by_element) {
    const int64_t ours = ours_[static_cast<size_t>(row)];
    if (ours < 0) {
      std::fill_n(out, columns_, 0.0f);
    } else {
      read_elements(parameter_, first_ + ours, 0, columns_, out);
    }
  } else {
    for (int64_t i = 0; i < columns_; ++i) {
      const int64_t ours = ours_[static_cast<size_t>(i)];
      out[i] = 0;
      if (ours >= 0) read_elements(parameter_, first_ + ours, stored_.transposed ? row : 0, 1, out + i);
    }
  }
  if (stored_.added == 0) return;
  for (int64_t i = 0; i < columns_; ++i) out[i] -= stored_.added;
}

void for_each_run(const ExecContext& exec, const StoredRows& rows,
                  const std::function<void(int64_t, const float*)>& write) {
  constexpr size_t kRunBytes = 8 << 20;
  const size_t row_bytes = static_cast<size_t>(rows.columns()) * sizeof(float);
  const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(kRunBytes / std::max<size_t>(row_bytes, 1)));
  std::vector<float> values(static_cast<size_t>(std::min(most, rows.rows()) * rows.columns()));
  for (int64_t first = 0; first < rows.rows(); first += most) {
    const int64_t count = std::min(most, rows.rows() - first);
#pragma omp parallel for num_threads(exec.threads) schedule(static)
    for (int64_t row = 0; row < count; ++row) {
      rows.read(first + row, values.data() + row * rows.columns());
    }
    write(count, values.data());
  }
}

}  // namespace megalith
