// The table of kernels: one set of function pointers per instruction-set level, chosen once.
//
// Kernels are serial and work on ranges that the caller chose; they know nothing of threads, tensors or
// errors. Each source in this folder is compiled once a level (see CMakeLists.txt) into a namespace of its
// own and must not call inline functions of other headers: a copy compiled for a higher level could be the
// one that the linker keeps.
#pragma once

#include <cstdint>

namespace megalith::cpu {

/// Where the mask of a dropout comes from; see megalith/ops/dropout.h.
struct MaskSource {
  uint64_t key = 0;
  uint64_t first_position = 0;
  uint64_t first_element = 0;
  uint32_t stream = 0;
  uint32_t threshold = 0;
  float scale = 1;
  bool active = false;
};

/// What an inner kernel does with what C holds. `stream` assigns past the caches: for results that a
/// core's own caches would not hold, of which every line is written once and whole; c and ldc on 64-byte
/// boundaries.
enum class StoreMode { assign, add, stream };

/// Operands of a matrix product in the form that the inner kernel multiplies. A step along the summed
/// dimension is one 32-bit unit: one fp32 number, or two bf16 ones.
struct GemmKernels {
  static constexpr int64_t kPanel = 64;  // columns of a packed panel of B

  int64_t elements_per_unit = 1;
  int64_t unit_multiple = 1;       // units of a pass are a multiple of this many, the last ones zero
  int64_t most_units = 512;        // in each of several passes over the summed dimension
  int64_t most_units_alone = 768;  // in a single pass, which writes results once
  bool a_direct = true;            // rows of A are read as stored; else the caller converts them to fp32
  bool packs_all_rows = false;     // the inner kernel reads packed rows only
  int64_t row_tile = 6;  // rows of A that the inner kernel takes at once, and of a packed panel of A
  int64_t slack_a = 0;   // words behind each packed panel of A that packing overwrites

  /// b[k][n], n contiguous (element stride ld) -> panels [n/64][units][64], zero-padded.
  void (*pack_b_rows)(const void* b, int64_t ld, int64_t k, int64_t n, int64_t units, void* packed);
  /// b[n][k], k contiguous -> the same panels.
  void (*pack_b_columns)(const void* b, int64_t ld, int64_t k, int64_t n, int64_t units, void* packed);
  /// a[k][m], m contiguous -> panels of row_tile rows x units, slack_a words apart.
  void (*pack_a_columns)(const void* a, int64_t ld, int64_t k, int64_t m, int64_t units, void* packed);
  /// a[m][k], k contiguous -> the same panels. Null where the inner kernel reads such rows in place, whatever
  /// the shape.
  void (*pack_a_rows)(const void* a, int64_t ld, int64_t k, int64_t m, int64_t units, void* packed) = nullptr;
  /// c[rows][columns] (fp32, row stride ldc) = or += A B, as `mode` says, for one panel of B. A's row i, unit
  /// u is at a + i*row_bytes + u*unit_bytes. Writes whole vectors: c needs room for columns rounded up to 16.
  void (*multiply)(int64_t rows, int64_t columns, int64_t units, const void* a, int64_t row_bytes,
                   int64_t unit_bytes, const void* b, float* c, int64_t ldc, StoreMode mode);
  /// The last pass for results of the operands' own storage type: y = sums + A B + bias over rows x columns,
  /// and no more. `sums` (of the passes before, readable up to a whole vector) and `bias` may be null.
  /// Storing behind each tile hides in the arithmetic of the next one; `stream` stores past the caches, and y
  /// lies on their lines then. Null where there is only `multiply`.
  void (*finish)(int64_t rows, int64_t columns, int64_t units, const void* a, int64_t row_bytes,
                 int64_t unit_bytes, const void* b, const float* sums, int64_t sums_stride, const float* bias,
                 void* y, int64_t ldy, bool stream) = nullptr;
};

struct AttentionGeometry {
  int64_t tokens, heads, kv_heads, head_size, columns;  // columns: of a row of qkv
  float scale;
  float softcap = 0;              // 0 for none
  const float* slopes = nullptr;  // ALiBi's, of each head; null for none. Not with a soft cap.

  /// Whether the scaled products themselves are the logits.
  bool plain() const { return softcap == 0 && slopes == nullptr; }
};

/// The keys begin .. end - 1 of its batch row that a query sees; never none.
struct KeyRange {
  int32_t begin, end;
};

/// Kernels that exist once a storage type (fp32, bf16, fp16).
struct TypedKernels {
  void (*to_float)(const void* x, float* y, int64_t n);
  void (*from_float)(const float* x, void* y, int64_t n);
  void (*scale)(void* x, float factor, int64_t n);
  /// x = cap * tanh(scale * x / cap).
  void (*soft_cap)(void* x, float scale, float cap, int64_t n);

  /// y = or += c + bias over rows x columns.
  void (*store_rows)(const float* c, int64_t ldc, int64_t rows, int64_t columns, const float* bias, void* y,
                     int64_t ldy, bool add);
  /// sums[j] += column sums.
  void (*column_sums)(const void* x, int64_t ld, int64_t rows, int64_t columns, float* sums);

  void (*activation_forward)(int activation, const void* x, void* y, int64_t rows, int64_t columns);
  /// y, the output once more, may be null or dy.
  void (*activation_backward)(int activation, const void* x, const void* dy, void* dx, void* y, int64_t rows,
                              int64_t columns);

  void (*norm_forward)(bool centred, const void* x, const void* weight, const void* bias, float epsilon,
                       void* y, float* mean, float* rstd, int64_t rows, int64_t columns);
  void (*norm_backward)(bool centred, const void* dy, const void* x, const void* weight, const float* mean,
                        const float* rstd, void* dx, float* dweight, float* dbias, int64_t rows,
                        int64_t columns);

  /// y = x + delta * mask over rows first_row .. first_row + rows - 1.
  void (*residual_add)(const MaskSource& mask, const void* x, const void* delta, void* y, int64_t first_row,
                       int64_t rows, int64_t columns);
  void (*masked_copy)(const MaskSource& mask, const void* dy, void* dx, int64_t first_row, int64_t rows,
                      int64_t columns);

  /// One row: y = (scale * token + position + type) * mask; position and type may be null.
  void (*embed_row)(const MaskSource& mask, const void* token, float scale, const void* position,
                    const void* type, void* y, int64_t row, int64_t columns);
  /// table[j] += dy[j] * mask for columns begin .. end - 1 of one row.
  void (*add_row)(const MaskSource& mask, const void* dy, float* table, int64_t row, int64_t begin,
                  int64_t end);

  /// log(sum exp x) over n columns; minus infinity over none.
  float (*log_sum_exp)(const void* x, int64_t n);
  /// x = (softmax(x) - onehot(target)) * weight over n columns, then zeros up to `padded`. A negative target
  /// is none of these columns. With softcap > 0 also times 1 - (x / softcap)^2, the soft cap's derivative.
  void (*softmax_gradient)(void* x, float log_sum_exp, int64_t target, float weight, float softcap, int64_t n,
                           int64_t padded);
  float (*load_one)(const void* x, int64_t index);

  /// Rotates one head's first 2*pairs columns.
  void (*rotate)(void* head, const float* cosine, const float* sine, int64_t pairs, bool interleaved);
};

struct AttentionKernels {
  /// Bytes of the scratch of one call, and of the packed keys and values of one key/value head.
  int64_t (*packed_bytes)(int64_t keys, int64_t head_size);
  int64_t (*forward_scratch_bytes)(int64_t head_size);
  int64_t (*backward_scratch_bytes)(int64_t tokens, int64_t head_size);
  int64_t (*cache_scratch_bytes)(int64_t head_size);
  int64_t query_block;
  int64_t key_block;

  /// Packs keys begin .. end - 1 (begin on a block boundary) of one head; k and v point at key 0.
  void (*pack)(const void* k, const void* v, int64_t row_stride, int64_t begin, int64_t end, int64_t keys,
               int64_t head_size, void* packed);
  /// Query rows begin .. end - 1 of one batch row and one head. `visible` holds one range a query of the
  /// batch row. Key blocks that no query of a block sees cost nothing.
  void (*forward)(const AttentionGeometry& geometry, const void* q, const void* packed,
                  const KeyRange* visible, const MaskSource& mask, int64_t batch, int64_t head, int64_t begin,
                  int64_t end, void* out, float* log_sum_exp, void* scratch);
  /// All queries that share one key/value head: gradients of those queries, keys and values.
  void (*backward)(const AttentionGeometry& geometry, const void* qkv, const KeyRange* visible,
                   const MaskSource& mask, int64_t batch, int64_t kv_head, const void* out,
                   const float* log_sum_exp, const void* dout, void* dqkv, void* scratch);
  /// One key/value head of one sequence. Row r is query head r % group of the new token r / group, where
  /// `group` query heads share the key/value head; rows first .. last - 1, at most query_block. `visible`
  /// holds one range a new token.
  void (*cached)(const AttentionGeometry& geometry, const void* qkv, int64_t past, const KeyRange* visible,
                 const void* keys, const void* values, int64_t kv_head, int64_t first, int64_t last,
                 void* out, void* scratch);
};

struct AdamWStep {
  float learning_rate, beta1, beta2, epsilon, weight_decay, bias_correction1, bias_correction2,
      gradient_scale;
};

/// What the fused optimizer loops write besides the fp32 weights.
enum class CopyKind : int { none, bf16, f16 };
struct RoundedCopy {
  void* data = nullptr;
  CopyKind kind = CopyKind::none;
  bool past_caches = false;  // where nobody will find it in the caches, reading its lines first is in vain
};

struct OptimizerKernels {
  void (*adamw)(const AdamWStep& step, float* weight, float* m, float* v, const float* gradient,
                RoundedCopy copy, int64_t n);
  void (*sgd)(float learning_rate, float momentum, float weight_decay, float gradient_scale, float* weight,
              float* u, const float* gradient, RoundedCopy copy, int64_t n);
  /// Moments and direction r; adds |w|^2 and |r|^2 of the range.
  void (*lamb_direction)(const AdamWStep& step, const float* weight, float* m, float* v,
                         const float* gradient, float* direction, int64_t n, double* weight_squares,
                         double* direction_squares);
  /// w -= rate * r.
  void (*apply)(float rate, const float* direction, float* weight, RoundedCopy copy, int64_t n);
};

struct ElementKernels {
  /// sums[g]: squares of the 16 numbers of group g, added in a fixed order.
  void (*group_squares)(const float* x, double* sums, int64_t groups);
  /// Index of the first number that is not finite, or -1.
  int64_t (*first_not_finite)(const float* x, int64_t n);
  /// sum[j] += x[j].
  void (*add)(const float* x, float* sum, int64_t n);
  /// Cosine and sine of position * frequency[i].
  void (*angles)(double position, const float* frequency, float* cosine, float* sine, int64_t n);
};

struct PeakKernels {
  /// Each runs `steps` steps and returns the operations done.
  double (*fp32)(int64_t steps);
  double (*bf16)(int64_t steps);  // null where the level has neither dot products nor tiles
  double (*amx)(int64_t steps);   // null without tiles
  /// Sum of n floats (so that the reads cannot be dropped); n is a multiple of 64.
  float (*read)(const float* x, int64_t n);
  void (*copy)(const float* x, float* y, int64_t n);
};

struct KernelTable {
  TypedKernels typed[3];  // by type_index
  GemmKernels gemm[3];
  AttentionKernels attention[3];
  OptimizerKernels optimizer;
  ElementKernels element;
  PeakKernels peak;
};

}  // namespace megalith::cpu
