#include "megalith/ops/gemm.h"

#include <immintrin.h>

#include <cstring>
#include <limits>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

constexpr int64_t kPanel = cpu::GemmKernels::kPanel;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// How the rectangle of C is cut into tasks, and the summed dimension into passes. A packed block of B
/// (columns x units, at most 0.75 MiB, or 1.5 where A is packed for every column of tasks) stays near the
/// core while rows of A stream past it.
struct Blocking {
  int64_t units;    // along the summed dimension, in a pass
  int64_t columns;  // of a task
  int64_t rows;     // of a task
  int64_t column_tasks, row_tasks;

  /// Passes begin at multiples of `unit_multiple`.
  Blocking(const cpu::GemmKernels& kernels, int64_t m, int64_t n, int64_t total_units, int64_t unit_multiple,
           int threads, bool packs_a) {
    // With few rows B is read once and hardly reused: single panels, in long runs through memory.
    constexpr int64_t kFewRows = 32, kMostRows = 2048;
    const bool few_rows = m <= kFewRows;
    const int64_t most_units = few_rows ? 1024 : kernels.most_units;
    const int64_t most_columns = few_rows ? kPanel : packs_a ? 768 : 384;
    const int64_t passes = std::max<int64_t>(1, divide_up(total_units, most_units));
    units = std::max<int64_t>(1, round_up(divide_up(total_units, passes), unit_multiple));

    const int64_t fewest_columns = divide_up(n, most_columns), fewest_rows = divide_up(m, kMostRows);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t down = fewest_rows; down < fewest_rows + threads; ++down) {
      for (int64_t across = fewest_columns; across < fewest_columns + (few_rows ? 1 : threads); ++across) {
        const int64_t width = round_up(divide_up(n, across), kPanel);
        const int64_t height = round_up(divide_up(m, down), kernels.row_tile);
        const int64_t tasks = divide_up(n, width) * divide_up(m, height);
        const int64_t time = divide_up(tasks, threads) * task_time(height, width, packs_a);
        if (time >= least) continue;
        least = time;
        columns = width;
        rows = height;
      }
    }
    column_tasks = divide_up(n, columns);
    row_tasks = divide_up(m, rows);
  }

  /// In results, per unit: packing a column of B or a row of A takes about as long as computing 25 or 30.
  static int64_t task_time(int64_t rows, int64_t columns, bool packs_a) {
    return rows * columns + 25 * columns + (packs_a ? 30 * rows : 0);
  }
};

/// A whose rows the inner kernel can read in place.
struct RowOperand {
  const char* data;
  int64_t row_bytes;
};

/// Fetches the rows of A that the next tile will read while the current one is computed: the processor's own
/// prefetching would begin with the first of them, and a tile is too short to make up for the wait.
class RowsAhead {
 public:
  RowsAhead(const char* row, int64_t rows, int64_t row_bytes, int64_t bytes)
      : row_(row), row_bytes_(row_bytes), lines_(divide_up(bytes, 64)), left_(rows * lines_) {}

  void fetch(int64_t count) {
    for (count = std::min(count, left_); count > 0; --count, --left_) {
      __builtin_prefetch(row_ + line_ * 64, 0, 2);
      if (++line_ == lines_) {
        line_ = 0;
        row_ += row_bytes_;
      }
    }
  }
  int64_t left() const { return left_; }

 private:
  const char* row_;
  int64_t row_bytes_, lines_, left_, line_ = 0;
};

/// Fetches a rectangle that will be written. A tile takes long enough for it to arrive.
template <class T>
void fetch_rectangle(const T* first, int64_t rows, int64_t columns, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, first += stride) {
    for (int64_t at = 0; at < columns; at += 64 / static_cast<int64_t>(sizeof(T))) {
      __builtin_prefetch(first + at, 1);
    }
  }
}

/// Converts or pads A where its rows are not whole units of the kernel.
RowOperand prepare_rows(const ExecContext& context, const cpu::GemmKernels& kernels, const GemmOperand& a,
                        int64_t m, int64_t k) {
  const size_t size = size_of(a.dtype);
  const char* source = static_cast<const char*>(a.data);
  if (kernels.a_direct && k % kernels.elements_per_unit == 0) {
    return {source, a.stride * static_cast<int64_t>(size)};
  }
  const int64_t row_bytes = round_up(k, kernels.elements_per_unit) / kernels.elements_per_unit * 4;
  char* rows = static_cast<char*>(context.workspace.allocate(static_cast<size_t>(m * row_bytes)));
  parallel_blocks(context, m, rows_per_block(k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* to = rows + i * row_bytes;
      const char* from = source + static_cast<size_t>(i * a.stride) * size;
      if (kernels.a_direct) {
        const size_t bytes = static_cast<size_t>(k) * size;
        std::memcpy(to, from, bytes);
        std::memset(to + bytes, 0, static_cast<size_t>(row_bytes) - bytes);
      } else {
        cpu::typed(a.dtype).to_float(from, reinterpret_cast<float*>(to), k);
      }
    }
  });
  return {rows, row_bytes};
}

}  // namespace

void gemm(const ExecContext& context, int64_t m, int64_t n, int64_t k, const GemmOperand& a,
          const GemmOperand& b, const GemmResult& c) {
  gemm(context, cpu::kernels().gemm[cpu::type_index(a.dtype)], m, n, k, a, b, c);
}

void gemm(const ExecContext& context, const cpu::GemmKernels& kernels, int64_t m, int64_t n, int64_t k,
          const GemmOperand& a, const GemmOperand& b, const GemmResult& c) {
  if (m == 0 || n == 0) return;
  const cpu::TypedKernels& output = cpu::typed(c.dtype);
  const int64_t step = kernels.elements_per_unit, tile = kernels.row_tile;
  const int64_t total_units = round_up(divide_up(k, step), kernels.unit_multiple);
  const bool packs_a = !a.sum_contiguous || kernels.pack_a_rows != nullptr;
  // Whole blocks are decoded at a time.
  const int64_t block = b.encoded == nullptr ? 1 : b.encoded->block_elements();
  const Blocking blocking(kernels, m, n, total_units, std::max<int64_t>(16, block),
                          std::max(1, context.threads), packs_a);
  ArenaScope arena(context.workspace);
  const RowOperand direct = packs_a ? RowOperand{nullptr, 0} : prepare_rows(context, kernels, a, m, k);

  // Passes accumulate in C itself where C is fp32 and made of whole vectors, else in a buffer.
  const bool one_pass = total_units <= blocking.units;
  const bool in_place = c.dtype == DType::f32 && c.stride % 16 == 0 && n % 16 == 0;
  const bool finishes =
      kernels.finish != nullptr && c.dtype == a.dtype && !c.add && (!in_place || c.bias != nullptr);
  // A result that the caches would not hold until it is read again need not pass through them.
  constexpr int64_t kStreamBytes = 8 << 20;
  const bool streams = in_place && one_pass && c.bias == nullptr && m * n * 4 >= kStreamBytes &&
                       reinterpret_cast<uintptr_t>(c.data) % 64 == 0;
  const int64_t packed_rows = round_up(96, tile);
  const int64_t packed_panel_bytes = (blocking.units * tile + kernels.slack_a) * 4;
  const int64_t b_bytes = b.packed ? 0 : blocking.columns * blocking.units * 4;
  const int64_t a_bytes = packs_a ? packed_rows / tile * packed_panel_bytes : 0;
  const int64_t c_rows = in_place || (finishes && one_pass) ? 0 : one_pass ? tile : blocking.rows;
  const int64_t c_bytes = c_rows * blocking.columns * 4;
  const int64_t decoded_bytes = b.encoded == nullptr ? 0 : b_bytes;
  const int64_t scratch_bytes =
      round_up(b_bytes, 64) + round_up(a_bytes, 64) + round_up(c_bytes, 64) + round_up(decoded_bytes, 64);
  char* scratch = static_cast<char*>(
      context.workspace.allocate(static_cast<size_t>(scratch_bytes * std::max(1, context.threads))));
  const size_t b_size = size_of(b.dtype), a_size = size_of(a.dtype), c_size = size_of(c.dtype);

  parallel_tasks(context, blocking.column_tasks * blocking.row_tasks, [&](int64_t task, int thread) {
    const int64_t column = task / blocking.row_tasks * blocking.columns;
    const int64_t row = task % blocking.row_tasks * blocking.rows;
    const int64_t columns = std::min(blocking.columns, n - column), rows = std::min(blocking.rows, m - row);
    char* packed_b = scratch + scratch_bytes * thread;
    char* packed_a = packed_b + round_up(b_bytes, 64);
    float* buffer = reinterpret_cast<float*>(packed_a + round_up(a_bytes, 64));
    float* decoded = buffer + round_up(c_bytes, 64) / 4;
    for (int64_t unit = 0; unit == 0 || unit < total_units; unit += blocking.units) {
      const int64_t units = std::min(blocking.units, total_units - unit);
      const int64_t first = unit * step, count = std::min(units * step, k - first);
      const bool last = unit + units >= total_units;
      const char* panels = packed_b;
      int64_t panel_bytes = units * kPanel * 4;
      if (b.packed) {
        panel_bytes = total_units * kPanel * 4;
        panels = static_cast<const char*>(b.data) + column / kPanel * panel_bytes + unit * kPanel * 4;
      } else if (b.encoded != nullptr) {
        for (int64_t j = 0; j < columns; ++j) {
          b.encoded->decode(column + j, first, count, decoded + j * blocking.units);
        }
        kernels.pack_b_columns(decoded, blocking.units, count, columns, units, packed_b);
      } else if (b.sum_contiguous) {
        kernels.pack_b_columns(offset(b.data, column * b.stride + first, b_size), b.stride, count, columns,
                               units, packed_b);
      } else {
        kernels.pack_b_rows(offset(b.data, first * b.stride + column, b_size), b.stride, count, columns,
                            units, packed_b);
      }
      for (int64_t i = 0; i < rows; i += tile) {
        const int64_t height = std::min(tile, rows - i);
        if (packs_a && i % packed_rows == 0) {
          const int64_t height_packed = std::min(packed_rows, rows - i);
          if (a.sum_contiguous) {
            kernels.pack_a_rows(offset(a.data, (row + i) * a.stride + first, a_size), a.stride, count,
                                height_packed, units, packed_a);
          } else {
            kernels.pack_a_columns(offset(a.data, first * a.stride + row + i, a_size), a.stride, count,
                                   height_packed, units, packed_a);
          }
        }
        const char* left = packs_a ? packed_a + i % packed_rows / tile * (units * tile + kernels.slack_a) * 4
                                   : direct.data + (row + i) * direct.row_bytes + unit * 4;
        const int64_t row_bytes = packs_a ? 4 : direct.row_bytes, unit_bytes = packs_a ? tile * 4 : 4;
        RowsAhead next(left + tile * row_bytes, packs_a ? 0 : std::min(tile, rows - i - height), row_bytes,
                       units * 4);
        const int64_t lines_a_panel = divide_up(next.left(), divide_up(columns, kPanel));
        void* result = offset(c.data, (row + i) * c.stride + column, c_size);
        float* sums = in_place   ? static_cast<float*>(result)
                      : one_pass ? buffer
                                 : buffer + i * blocking.columns;
        const int64_t sums_stride = in_place ? c.stride : blocking.columns;
        const cpu::StoreMode mode = unit > 0 || (in_place && c.add) ? cpu::StoreMode::add
                                    : streams                       ? cpu::StoreMode::stream
                                                                    : cpu::StoreMode::assign;
        for (int64_t j = 0; j < columns; j += kPanel) {
          const int64_t width = std::min(kPanel, columns - j);
          const char* panel = panels + j / kPanel * panel_bytes;
          next.fetch(lines_a_panel);
          if (mode == cpu::StoreMode::add) {
            const bool right =
                j + kPanel < columns;  // the next tile, unless it is the first of the next rows
            const float* start = right ? sums + j + kPanel : sums + tile * sums_stride;
            if (right || i + tile < rows) fetch_rectangle(start, height, kPanel, sums_stride);
          }
          if (last && finishes) {
            fetch_rectangle(static_cast<const char*>(offset(result, j, c_size)), height,
                            width * static_cast<int64_t>(c_size), c.stride * static_cast<int64_t>(c_size));
            kernels.finish(height, width, units, left, row_bytes, unit_bytes, panel,
                           unit > 0 ? sums + j : nullptr, sums_stride,
                           c.bias == nullptr ? nullptr : c.bias + column + j, offset(result, j, c_size),
                           c.stride);
          } else {
            kernels.multiply(height, width, units, left, row_bytes, unit_bytes, panel, sums + j, sums_stride,
                             mode);
          }
        }
        if (last && !finishes && (!in_place || c.bias != nullptr)) {
          output.store_rows(sums, sums_stride, height, columns, c.bias == nullptr ? nullptr : c.bias + column,
                            result, c.stride, !in_place && c.add);
        }
      }
    }
    if (streams) _mm_sfence();  // streamed lines become visible before the task counts as done
  });
}

size_t packed_operand_bytes(DType dtype, int64_t n, int64_t k) {
  const cpu::GemmKernels& kernels = cpu::kernels().gemm[cpu::type_index(dtype)];
  const int64_t units = round_up(divide_up(k, kernels.elements_per_unit), kernels.unit_multiple);
  return static_cast<size_t>(round_up(n, kPanel) * units * 4);
}

void pack_operand(const ExecContext& context, int64_t n, int64_t k, const GemmOperand& b, void* packed) {
  const cpu::GemmKernels& kernels = cpu::kernels().gemm[cpu::type_index(b.dtype)];
  const int64_t units = round_up(divide_up(k, kernels.elements_per_unit), kernels.unit_multiple);
  parallel_blocks(context, n, kPanel, [&](int64_t begin, int64_t end) {
    const void* from = offset(b.data, b.sum_contiguous ? begin * b.stride : begin, size_of(b.dtype));
    (b.sum_contiguous ? kernels.pack_b_columns : kernels.pack_b_rows)(
        from, b.stride, k, end - begin, units, static_cast<char*>(packed) + begin * units * 4);
  });
}

}  // namespace megalith
