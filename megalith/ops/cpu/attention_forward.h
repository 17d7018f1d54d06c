// Attention forward: one block of query rows against blocks of keys with a running softmax.
#pragma once

#include "megalith/ops/cpu/attention_operands.h"

namespace megalith::cpu::MEGALITH_LEVEL {

template <class Unit>
inline constexpr int64_t kForwardBlock = kUsesTiles<Unit> ? 64 : 48;  // query rows

/// State of a block of query rows: the weighted sum of values so far, the largest logit and the sum of
/// exponentials relative to it.
template <class Unit>
struct QueryBlock {
  int64_t head_size, padded;
  uint32_t* queries;
  float* logits;
  uint32_t* probabilities;  // the logits' own storage where a unit is one number
  float* sums;
  float* largest;
  float* totals;

  QueryBlock(Scratch& scratch, int64_t size) : head_size(size), padded(padded_size(size)) {
    constexpr int64_t kRows = kForwardBlock<Unit>;
    queries = scratch.take<uint32_t>(row_words<Unit>(kRows, operand_units<Unit>(size)));
    logits = scratch.take<float>(kRows * kKeyBlock);
    probabilities = Unit::kElements == 1
                        ? reinterpret_cast<uint32_t*>(logits)
                        : scratch.take<uint32_t>(row_words<Unit>(kRows, operand_units<Unit>(kKeyBlock)));
    sums = scratch.take<float>(kRows * padded);
    largest = scratch.take<float>(kRows);
    totals = scratch.take<float>(kRows);
  }

  void start(int64_t rows) {
    for (int64_t i = 0; i < rows * padded; ++i) sums[i] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      largest[r] = -__builtin_inff();
      totals[r] = 0;
    }
  }

  /// logits = Q K^T over the first `columns` keys of a block.
  MEGALITH_INLINE void multiply_keys(int64_t rows, int64_t columns, const uint32_t* keys) {
    const int64_t units = operand_units<Unit>(head_size);
    multiply_rows_by<Unit>(rows, columns, units, queries, units, keys, logits, kKeyBlock, StoreMode::assign);
  }

  /// Folds the logits of one row over one key block into its running softmax and puts the probabilities
  /// (masked by dropout) where the product with the values reads them.
  MEGALITH_INLINE void fold(int64_t r, Visible visible, float scale, const float* factors) {
    const float* from = logits + r * kKeyBlock;
    KeyRow row = {};
    if (!visible.none()) {
      Vector most = Vector{} - __builtin_inff();
#pragma GCC unroll 8
      for (int64_t v = 0; v < kRowVectors; ++v) {
        row.part[v] = load_vector(from + v * kLanes) * scale;
        if (!visible.all())
          row.part[v] = visible_lanes(visible, v) ? row.part[v] : Vector{} - __builtin_inff();
        most = larger_lanes(most, row.part[v]);
      }
      const float before = largest[r], now = larger(before, largest_of_lanes(most));
      Vector total = {};
#pragma GCC unroll 8
      for (int64_t v = 0; v < kRowVectors; ++v) {
        row.part[v] = exponential(row.part[v] - now);
        total += row.part[v];
      }
      if (now != before) rescale(r, now);
      totals[r] += sum_of_lanes(total);
      if (factors != nullptr) {
#pragma GCC unroll 8
        for (int64_t v = 0; v < kRowVectors; ++v) row.part[v] *= load_vector(factors + v * kLanes);
      }
    }
    put_row<Unit>(row, r, probabilities);
  }

  MEGALITH_INLINE void rescale(int64_t r, float now) {
    const float factor = exponential(largest[r] - now);
    float* sum = sums + r * padded;
    for (int64_t d = 0; d < padded; d += kLanes) store_vector(sum + d, load_vector(sum + d) * factor);
    totals[r] *= factor;
    largest[r] = now;
  }

  /// sums += P V over the first `count` of the `packed` keys of a block.
  MEGALITH_INLINE void add_values(int64_t rows, int64_t count, int64_t packed, const uint32_t* values) {
    const int64_t panel_units = operand_units<Unit>(packed);
    for (int64_t d = 0; d < head_size; d += kPanel) {
      multiply_rows_by<Unit>(rows, smaller(kPanel, head_size - d), operand_units<Unit>(count), probabilities,
                             operand_units<Unit>(kKeyBlock), values + d * panel_units, sums + d, padded,
                             StoreMode::add);
    }
  }

  template <class T>
  MEGALITH_INLINE void finish(int64_t r, T* out, float* log_sum_exp) {
    const float inverse = 1.0f / totals[r];
    const float* sum = sums + r * padded;
#pragma omp simd
    for (int64_t d = 0; d < head_size; ++d) out[d] = store<T>(sum[d] * inverse);
    if (log_sum_exp != nullptr) *log_sum_exp = largest[r] + __builtin_logf(totals[r]);
  }
};

template <class Unit>
int64_t packed_bytes(int64_t keys, int64_t head_size) {
  const int64_t blocks = (keys + kKeyBlock - 1) / kKeyBlock;
  return blocks * (column_block_words<Unit>(head_size) + row_block_words<Unit>(head_size)) * 4;
}

template <class Unit>
int64_t forward_scratch_bytes(int64_t head_size) {
  Scratch scratch{nullptr};
  QueryBlock<Unit> block(scratch, head_size);
  return scratch.used;
}

template <class Unit>
int64_t cache_scratch_bytes(int64_t head_size) {
  return forward_scratch_bytes<Unit>(head_size) +
         (column_block_words<Unit>(head_size) + row_block_words<Unit>(head_size)) * 4;
}

/// A block's keys, then its values, one block behind the other.
template <class Unit, class T>
void pack_keys_and_values(const void* k, const void* v, int64_t row_stride, int64_t begin, int64_t end,
                          int64_t keys, int64_t head_size, void* packed) {
  const int64_t key_words = column_block_words<Unit>(head_size);
  for (int64_t at = begin; at < end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, keys - at);
    uint32_t* to =
        static_cast<uint32_t*>(packed) + at / kKeyBlock * (key_words + row_block_words<Unit>(head_size));
    pack_b_columns<Unit, T>(static_cast<const T*>(k) + at * row_stride, row_stride, head_size, count,
                            operand_units<Unit>(head_size), to);
    pack_b_rows<Unit, T>(static_cast<const T*>(v) + at * row_stride, row_stride, count, head_size,
                         operand_units<Unit>(count), to + key_words);
  }
}

template <class Unit, class T>
void attention_forward_block(const AttentionGeometry& g, const void* q, const void* packed,
                             const KeyRange* visible, const MaskSource& mask, int64_t batch, int64_t head,
                             int64_t begin, int64_t end, void* out, float* log_sum_exp, void* scratch_raw) {
  Scratch scratch{static_cast<char*>(scratch_raw)};
  QueryBlock<Unit> block(scratch, g.head_size);
  const int64_t rows = end - begin, out_stride = g.heads * g.head_size;
  const int64_t key_words = column_block_words<Unit>(g.head_size);
  load_rows<Unit>(static_cast<const T*>(q) + (batch * g.tokens + begin) * g.columns + head * g.head_size,
                  g.columns, 0, rows, g.head_size, block.queries);
  block.start(rows);
  const KeyRange range = range_of_block(visible, begin, end);
  const bool plain = g.plain();
  const float scale = plain ? g.scale : 1.0f;
  float buffer[kMaskBuffer];
  const float* factors = nullptr;
  for (int64_t at = range.begin / kKeyBlock * kKeyBlock; at < range.end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, range.end - at);
    const uint32_t* keys = static_cast<const uint32_t*>(packed) +
                           at / kKeyBlock * (key_words + row_block_words<Unit>(g.head_size));
    block.multiply_keys(rows, count, keys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t query = begin + r;
      if (mask.active) {
        factors = mask_factors(mask, static_cast<uint64_t>(batch * g.tokens + query),
                               static_cast<uint64_t>(head * g.tokens + at), kKeyBlock, buffer);
      }
      if (!plain) shape_logits(g, head, at - query, block.logits + r * kKeyBlock);
      block.fold(r, visible_keys(visible[query], at), scale, factors);
    }
    block.add_values(rows, count, smaller(kKeyBlock, g.tokens - at), keys + key_words);
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* to = static_cast<T*>(out) + (batch * g.tokens + begin + r) * out_stride + head * g.head_size;
    block.finish(r, to, log_sum_exp + (batch * g.heads + head) * g.tokens + begin + r);
  }
}

template <class Unit, class T>
void attention_cached(const AttentionGeometry& g, const void* qkv, int64_t past, const KeyRange* visible,
                      const void* keys, const void* values, int64_t kv_head, int64_t first_row,
                      int64_t last_row, void* out, void* scratch_raw) {
  Scratch scratch{static_cast<char*>(scratch_raw)};
  QueryBlock<Unit> block(scratch, g.head_size);
  const int64_t key_words = column_block_words<Unit>(g.head_size);
  uint32_t* packed = scratch.take<uint32_t>(key_words + row_block_words<Unit>(g.head_size));
  const int64_t group = g.heads / g.kv_heads, rows = last_row - first_row;
  const int64_t stride = g.kv_heads * g.head_size;
  const KeyRange range = range_of_block(visible, first_row / group, (last_row - 1) / group + 1);
  const bool plain = g.plain();
  const float scale = plain ? g.scale : 1.0f;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = (first_row + r) / group, head = kv_head * group + (first_row + r) % group;
    load_rows<Unit>(static_cast<const T*>(qkv) + token * g.columns + head * g.head_size, g.columns, r, 1,
                    g.head_size, block.queries);
  }
  block.start(rows);
  for (int64_t at = range.begin / kKeyBlock * kKeyBlock; at < range.end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, range.end - at), offset = at * stride + kv_head * g.head_size;
    pack_keys_and_values<Unit, T>(static_cast<const T*>(keys) + offset,
                                  static_cast<const T*>(values) + offset, stride, 0, count, count,
                                  g.head_size, packed);
    block.multiply_keys(rows, count, packed);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = (first_row + r) / group, head = kv_head * group + (first_row + r) % group;
      if (!plain) shape_logits(g, head, at - (past + token), block.logits + r * kKeyBlock);
      block.fold(r, visible_keys(visible[token], at), scale, nullptr);
    }
    block.add_values(rows, count, count, packed + key_words);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = (first_row + r) / group, head = kv_head * group + (first_row + r) % group;
    block.finish(r, static_cast<T*>(out) + (token * g.heads + head) * g.head_size, nullptr);
  }
}

template <class Unit, class T>
void set_attention_forward(AttentionKernels& kernels) {
  kernels.packed_bytes = packed_bytes<Unit>;
  kernels.forward_scratch_bytes = forward_scratch_bytes<Unit>;
  kernels.cache_scratch_bytes = cache_scratch_bytes<Unit>;
  kernels.query_block = kForwardBlock<Unit>;
  kernels.key_block = kKeyBlock;
  kernels.pack = pack_keys_and_values<Unit, T>;
  kernels.forward = attention_forward_block<Unit, T>;
  kernels.cached = attention_cached<Unit, T>;
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
