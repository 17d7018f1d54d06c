#include "megalith/ops/gemm.h"

#include <immintrin.h>

#include <atomic>
#include <cstring>
#include <new>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/gemm_blocking.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

constexpr int64_t kPanel = cpu::GemmKernels::kPanel;

/// A whose rows the inner kernel can read in place.
struct RowOperand {
  const char* data;
  int64_t row_bytes;
};

/// Fetches rows of A that will be read next while tiles are computed: the processor's own prefetching would
/// begin with the first of them, and a tile is too short to make up for the wait.
class RowsAhead {
 public:
  RowsAhead() = default;
  RowsAhead(const char* row, int64_t rows, int64_t row_bytes, int64_t bytes)
      : row_(row), row_bytes_(row_bytes), lines_(divide_up(bytes, 64)), left_(rows * lines_) {}

  /// Rows that the kernel reads in place share the first cache with a panel of B, and wait in the second one.
  /// Those to be packed come from far: fetches into the second alone are dropped where memory is busy.
  void fetch(int64_t count, bool to_pack) {
    for (count = std::min(count, left_); count > 0; --count, --left_) {
      if (to_pack) {
        __builtin_prefetch(row_ + line_ * 64, 0, 3);
      } else {
        __builtin_prefetch(row_ + line_ * 64, 0, 2);
      }
      if (++line_ == lines_) {
        line_ = 0;
        row_ += row_bytes_;
      }
    }
  }
  int64_t left() const { return left_; }

 private:
  const char* row_ = nullptr;
  int64_t row_bytes_ = 0, lines_ = 0, left_ = 0, line_ = 0;
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

/// One pass of a task: a rectangle of C and a part of the summed dimension, with its block of B packed.
struct Pass {
  int64_t column, columns, row, rows;  // of C
  int64_t unit, units;                 // of the summed dimension
  int64_t first, count;                // the same in elements
  bool last;
  const char* panels = nullptr;  // of B
  int64_t panel_bytes = 0;
  float* sums = nullptr;  // [rows][columns of a whole task], where C can't hold the sums of passes
};

/// The rows of a pass are handed out in parts. Those of a task's last pass go to any thread that finds no
/// task left, so that threads end together: `open` says that the pass is packed and stays as it is.
struct alignas(64) SharedPass {
  Pass pass;
  std::atomic<int64_t> next_row{0};
  std::atomic<bool> open{false};
};

class Product {
 public:
  Product(const ExecContext& context, const cpu::GemmKernels& kernels, int64_t m, int64_t n, int64_t k,
          const GemmOperand& a, const GemmOperand& b, const GemmResult& c)
      : context_(context),
        kernels_(kernels),
        m_(m),
        n_(n),
        k_(k),
        a_(a),
        b_(b),
        c_(c),
        threads_(std::max(1, context.threads)),
        total_units_(round_up(divide_up(k, kernels.elements_per_unit), kernels.unit_multiple)),
        packs_a_(!a.sum_contiguous || kernels.packs_all_rows ||
                 (kernels.pack_a_rows != nullptr && m >= kFewestPackedRows &&
                  total_units_ > kernels.most_units_alone)),
        // Whole blocks are decoded at a time.
        blocking_(kernels, m, n, total_units_,
                  std::max<int64_t>(16, b.encoded == nullptr ? 1 : b.encoded->block_elements()), threads_,
                  packs_a_),
        one_pass_(total_units_ <= blocking_.units),
        in_place_(c.dtype == DType::f32 && c.stride % 16 == 0 && n % 16 == 0),
        finishes_(kernels.finish != nullptr && c.dtype == a.dtype && !c.add &&
                  (!in_place_ || c.bias != nullptr)),
        streams_(!c.add && (in_place_ ? one_pass_ && (finishes_ || c.bias == nullptr) : finishes_) &&
                 m * n * static_cast<int64_t>(size_of(c.dtype)) >= kStreamBytes &&
                 c.stride * static_cast<int64_t>(size_of(c.dtype)) % 64 == 0 &&
                 reinterpret_cast<uintptr_t>(c.data) % 64 == 0),
        part_rows_(round_up(packs_a_ ? 96 : 48, kernels.row_tile)) {}

  void compute() {
    ArenaScope arena(context_.workspace);
    if (!packs_a_) direct_ = prepare_rows(context_, kernels_, a_, m_, k_);
    allocate();
    const int64_t tasks = blocking_.column_tasks * blocking_.row_tasks;
    if (threads_ <= 1 || tasks <= 1) {
      for (int64_t task = 0; task < tasks; ++task) compute_task(task, 0);
      return;
    }
    std::atomic<int64_t> next_task{0};
#pragma omp parallel num_threads(threads_)
    {
      const int thread = omp_get_thread_num();
      for (int64_t task; (task = next_task.fetch_add(1)) < tasks;) compute_task(task, thread);
      // No thread begins another task from here on: a pass that is open now is its thread's last one.
      for (int other = 0; other < threads_; ++other) {
        if (shared_[other].open.load(std::memory_order_acquire)) {
          compute_parts(shared_[other], thread);
        }
      }
    }
  }

 private:
  /// A result that a core's own caches would not hold until it is read again need not pass through them:
  /// rows of A and B stay there instead, and no line is read only to be written over.
  static constexpr int64_t kStreamBytes = 1 << 20;
  /// Rows that could be read in place are packed where there are several passes, hence long strides, and as
  /// many rows as pay for it.
  static constexpr int64_t kFewestPackedRows = 96;

  struct Scratch {
    char* b;         // packed
    char* a;         // packed, part_rows_ of them
    float* sums;     // see Pass, or of one tile where there is a single pass
    float* decoded;  // B, before it is packed
  };

  void allocate() {
    const int64_t b_bytes = b_.packed ? 0 : blocking_.columns * blocking_.units * 4;
    const int64_t a_bytes =
        packs_a_ ? part_rows_ / tile() * (blocking_.units * tile() + kernels_.slack_a) * 4 : 0;
    const int64_t sum_rows = in_place_ || (finishes_ && one_pass_) ? 0 : one_pass_ ? tile() : blocking_.rows;
    sizes_[0] = round_up(b_bytes, 64);
    sizes_[1] = round_up(a_bytes, 64);
    sizes_[2] = round_up(sum_rows * blocking_.columns * 4, 64);
    sizes_[3] = b_.encoded == nullptr ? 0 : sizes_[0];
    scratch_bytes_ = sizes_[0] + sizes_[1] + sizes_[2] + sizes_[3];
    scratch_ =
        static_cast<char*>(context_.workspace.allocate(static_cast<size_t>(scratch_bytes_ * threads_)));
    shared_ = static_cast<SharedPass*>(
        context_.workspace.allocate(sizeof(SharedPass) * static_cast<size_t>(threads_)));
    for (int thread = 0; thread < threads_; ++thread) new (shared_ + thread) SharedPass();
  }

  Scratch scratch(int thread) const {
    char* first = scratch_ + scratch_bytes_ * thread;
    return {first, first + sizes_[0], reinterpret_cast<float*>(first + sizes_[0] + sizes_[1]),
            reinterpret_cast<float*>(first + sizes_[0] + sizes_[1] + sizes_[2])};
  }

  int64_t tile() const {
    return kernels_.row_tile;
  }

  Pass pass_of(int64_t task, int64_t unit) const {
    Pass pass;
    pass.column = task / blocking_.row_tasks * blocking_.columns;
    pass.row = task % blocking_.row_tasks * blocking_.rows;
    pass.columns = std::min(blocking_.columns, n_ - pass.column);
    pass.rows = std::min(blocking_.rows, m_ - pass.row);
    pass.unit = unit;
    pass.units = std::min(blocking_.units, total_units_ - unit);
    pass.first = unit * kernels_.elements_per_unit;
    pass.count = std::min(pass.units * kernels_.elements_per_unit, k_ - pass.first);
    pass.last = unit + pass.units >= total_units_;
    return pass;
  }

  void compute_task(int64_t task, int thread) {
    SharedPass& shared = shared_[thread];
    for (int64_t unit = 0; unit == 0 || unit < total_units_; unit += blocking_.units) {
      shared.pass = pass_of(task, unit);
      shared.pass.sums = one_pass_ ? nullptr : scratch(thread).sums;
      pack_b(shared.pass, scratch(thread));
      shared.next_row.store(0, std::memory_order_relaxed);
      if (shared.pass.last) shared.open.store(true, std::memory_order_release);
      compute_parts(shared, thread);
      shared.open.store(false, std::memory_order_relaxed);
    }
  }

  void pack_b(Pass& pass, const Scratch& scratch) const {
    if (b_.packed) {
      pass.panel_bytes = total_units_ * kPanel * 4;
      pass.panels = static_cast<const char*>(b_.data) + pass.column / kPanel * pass.panel_bytes +
                    pass.unit * kPanel * 4;
      return;
    }
    pass.panel_bytes = pass.units * kPanel * 4;
    pass.panels = scratch.b;
    if (b_.encoded != nullptr) {
      for (int64_t j = 0; j < pass.columns; ++j) {
        b_.encoded->decode(pass.column + j, pass.first, pass.count, scratch.decoded + j * blocking_.units);
      }
      kernels_.pack_b_columns(scratch.decoded, blocking_.units, pass.count, pass.columns, pass.units,
                              scratch.b);
    } else {
      (b_.sum_contiguous ? kernels_.pack_b_columns : kernels_.pack_b_rows)(
          b_start(pass), b_.stride, pass.count, pass.columns, pass.units, scratch.b);
    }
  }

  const char* b_start(const Pass& pass) const {
    const int64_t at =
        b_.sum_contiguous ? pass.column * b_.stride + pass.first : pass.first * b_.stride + pass.column;
    return static_cast<const char*>(offset(b_.data, at, size_of(b_.dtype)));
  }
  const char* a_start(const Pass& pass, int64_t row) const {
    const int64_t at = a_.sum_contiguous ? (pass.row + row) * a_.stride + pass.first
                                         : pass.first * a_.stride + pass.row + row;
    return static_cast<const char*>(offset(a_.data, at, size_of(a_.dtype)));
  }

  /// The rows that will be packed after those before `row`.
  RowsAhead next_a(const Pass& pass, int64_t row) const {
    const int64_t size = static_cast<int64_t>(size_of(a_.dtype));
    const int64_t rows = std::min(part_rows_, pass.rows - row);
    if (rows <= 0) return {};
    return a_.sum_contiguous ? RowsAhead(a_start(pass, row), rows, a_.stride * size, pass.count * size)
                             : RowsAhead(a_start(pass, row), pass.count, a_.stride * size, rows * size);
  }

  void compute_parts(SharedPass& shared, int thread) const {
    const Pass& pass = shared.pass;
    for (int64_t row; (row = shared.next_row.fetch_add(part_rows_, std::memory_order_relaxed)) < pass.rows;) {
      compute_rows(pass, row, std::min(row + part_rows_, pass.rows), scratch(thread));
    }
    if (streams_) _mm_sfence();  // streamed lines become visible before the product counts as done
  }

  void compute_rows(const Pass& pass, int64_t begin, int64_t end, const Scratch& scratch) const {
    RowsAhead next;
    int64_t lines_a_tile = 0;
    const int64_t panels = divide_up(pass.columns, kPanel);
    if (packs_a_) {
      (a_.sum_contiguous ? kernels_.pack_a_rows : kernels_.pack_a_columns)(
          a_start(pass, begin), a_.stride, pass.count, end - begin, pass.units, scratch.a);
      next = next_a(pass, end);
      lines_a_tile = divide_up(next.left(), divide_up(end - begin, tile()) * panels);
    }
    const size_t c_size = size_of(c_.dtype);
    const cpu::StoreMode mode = pass.unit > 0 || (in_place_ && c_.add) ? cpu::StoreMode::add
                                : streams_ && pass.last                ? cpu::StoreMode::stream
                                                                       : cpu::StoreMode::assign;
    const int64_t sums_stride = in_place_ ? c_.stride : blocking_.columns;
    for (int64_t i = begin; i < end; i += tile()) {
      const int64_t height = std::min(tile(), end - i);
      const char* left;
      int64_t row_bytes = 4, unit_bytes = tile() * 4;
      if (packs_a_) {
        left = scratch.a + (i - begin) / tile() * (pass.units * tile() + kernels_.slack_a) * 4;
      } else {
        row_bytes = direct_.row_bytes, unit_bytes = 4;
        left = direct_.data + (pass.row + i) * row_bytes + pass.unit * 4;
        next = RowsAhead(left + tile() * row_bytes, std::min(tile(), pass.rows - i - height), row_bytes,
                         pass.units * 4);
        lines_a_tile = divide_up(next.left(), panels);
      }
      void* result = offset(c_.data, (pass.row + i) * c_.stride + pass.column, c_size);
      float* sums = in_place_   ? static_cast<float*>(result)
                    : one_pass_ ? scratch.sums
                                : pass.sums + i * blocking_.columns;
      for (int64_t j = 0; j < pass.columns; j += kPanel) {
        const int64_t width = std::min(kPanel, pass.columns - j);
        const char* panel = pass.panels + j / kPanel * pass.panel_bytes;
        next.fetch(lines_a_tile, packs_a_);
        if (mode == cpu::StoreMode::add) {
          const bool right =
              j + kPanel < pass.columns;  // the next tile, unless it is the first of the next rows
          const float* start = right ? sums + j + kPanel : sums + tile() * sums_stride;
          if (right || i + tile() < pass.rows) fetch_rectangle(start, height, kPanel, sums_stride);
        }
        if (pass.last && finishes_) {
          if (!streams_) {
            fetch_rectangle(static_cast<const char*>(offset(result, j, c_size)), height,
                            width * static_cast<int64_t>(c_size), c_.stride * static_cast<int64_t>(c_size));
          }
          kernels_.finish(height, width, pass.units, left, row_bytes, unit_bytes, panel,
                          pass.unit > 0 ? sums + j : nullptr, sums_stride,
                          c_.bias == nullptr ? nullptr : c_.bias + pass.column + j, offset(result, j, c_size),
                          c_.stride, streams_);
        } else {
          kernels_.multiply(height, width, pass.units, left, row_bytes, unit_bytes, panel, sums + j,
                            sums_stride, mode);
        }
      }
      if (pass.last && !finishes_ && (!in_place_ || c_.bias != nullptr)) {
        cpu::typed(c_.dtype).store_rows(sums, sums_stride, height, pass.columns,
                                        c_.bias == nullptr ? nullptr : c_.bias + pass.column, result,
                                        c_.stride, !in_place_ && c_.add);
      }
    }
  }

  const ExecContext& context_;
  const cpu::GemmKernels& kernels_;
  const int64_t m_, n_, k_;
  const GemmOperand& a_;
  const GemmOperand& b_;
  const GemmResult& c_;
  const int threads_;
  const int64_t total_units_;
  const bool packs_a_;
  const Blocking blocking_;
  const bool one_pass_;
  const bool in_place_;  // passes accumulate in C itself where it is fp32 and made of whole vectors
  const bool finishes_;  // the kernels' last pass stores results
  const bool streams_;
  const int64_t part_rows_;  // of a pass, handed out at a time
  RowOperand direct_ = {nullptr, 0};
  char* scratch_ = nullptr;
  int64_t sizes_[4] = {}, scratch_bytes_ = 0;
  SharedPass* shared_ = nullptr;
};

}  // namespace

void gemm(const ExecContext& context, int64_t m, int64_t n, int64_t k, const GemmOperand& a,
          const GemmOperand& b, const GemmResult& c) {
  gemm(context, cpu::kernels().gemm[cpu::type_index(a.dtype)], m, n, k, a, b, c);
}

void gemm(const ExecContext& context, const cpu::GemmKernels& kernels, int64_t m, int64_t n, int64_t k,
          const GemmOperand& a, const GemmOperand& b, const GemmResult& c) {
  if (m == 0 || n == 0) return;
  Product(context, kernels, m, n, k, a, b, c).compute();
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
