// Attention forward: one block of query rows against blocks of keys with a running softmax.
#pragma once

#include "megalith/ops/cpu/attention_operands.h"

namespace megalith::cpu::MEGALITH_LEVEL {

template <class Unit>
inline constexpr int64_t kForwardBlock = kUsesTiles<Unit> ? 64 : 48;  // query rows

/// State of a block of query rows: the weighted sum of values so far, and the sum of exponentials (of each
/// lane, until the end) relative to a logit near the largest.
template <class Unit>
struct QueryBlock {
  int64_t head_size, padded;
  uint32_t* queries;
  float* logits;            // of one group of rows
  uint32_t* probabilities;  // the logits' own storage where a unit is one number
  float* sums;
  float* totals;
  float* relative_to;

  QueryBlock(Scratch& scratch, int64_t size) : head_size(size), padded(padded_size(size)) {
    constexpr int64_t kRows = kForwardBlock<Unit>, kGroup = kGroupRows<Unit>;
    queries = scratch.take<uint32_t>(row_words<Unit>(kRows, operand_units<Unit>(size)));
    logits = scratch.take<float>(kGroup * kKeyBlock);
    probabilities = Unit::kElements == 1
                        ? reinterpret_cast<uint32_t*>(logits)
                        : scratch.take<uint32_t>(row_words<Unit>(kGroup, operand_units<Unit>(kKeyBlock)));
    sums = scratch.take<float>(kRows * padded);
    totals = scratch.take<float>(kRows * kLanes);
    relative_to = scratch.take<float>(kRows);
  }

  void start(int64_t rows) {
    for (int64_t i = 0; i < rows * padded; ++i) sums[i] = 0;
    for (int64_t i = 0; i < rows * kLanes; ++i) totals[i] = 0;
    for (int64_t r = 0; r < rows; ++r) relative_to[r] = -__builtin_inff();
  }

  /// logits = Q K^T of rows r .. r + rows - 1, a group, over the keys that it sees.
  MEGALITH_INLINE void multiply_keys(int64_t r, int64_t rows, Visible seen, const uint32_t* keys) {
    const int64_t units = operand_units<Unit>(head_size), first = first_column<Unit>(seen);
    multiply_rows_by<Unit>(rows, seen.high - first, units, queries + r * units, units, keys + first,
                           logits + first, kKeyBlock, StoreMode::assign);
  }

  /// Part v of a row's logits, -infinity where they are not visible.
  static MEGALITH_INLINE Vector visible_part(const float* row, Visible visible, int64_t v) {
    const Vector part = load_vector(row + v * kLanes);
    return visible.all() || visible_lanes(visible, v) ? part : Vector{} - __builtin_inff();
  }

  /// Sees to it that no exponential of row r over a key block is far above 1.
  MEGALITH_INLINE void bound(int64_t r, const float* row, Visible visible, float scale) {
    // Following every new largest logit would rescale what has been summed again and again. e^4 is as good
    // as 1.
    constexpr float kFarAbove = 4.0f;
    Vector most = visible_part(row, visible, 0);
#pragma GCC unroll 8
    for (int64_t v = 1; v < kRowVectors; ++v) most = larger_lanes(most, visible_part(row, visible, v));
    const float now = largest_of_lanes(most) * scale;
    if (now > relative_to[r] + kFarAbove) rescale(r, now);
  }

  /// Turns the logits of row r over a key block into exponentials and puts them (masked by dropout) where the
  /// product with the values reads them.
  MEGALITH_INLINE void exponentiate(int64_t r, const float* row, Visible visible, float scale,
                                    const float* factors, int64_t row_of_group) {
    KeyRow exponentials = {};
    if (!visible.none()) {
      const float shift = relative_to[r];
      Vector total = load_vector(totals + r * kLanes);
#pragma GCC unroll 8
      for (int64_t v = 0; v < kRowVectors; ++v) {
        exponentials.part[v] = shifted_exponential<Unit>(visible_part(row, visible, v), scale, shift);
        total += exponentials.part[v];
      }
      store_vector(totals + r * kLanes, total);
      if (factors != nullptr) {
#pragma GCC unroll 8
        for (int64_t v = 0; v < kRowVectors; ++v) exponentials.part[v] *= load_vector(factors + v * kLanes);
      }
    }
    put_row<Unit>(exponentials, row_of_group, probabilities);
  }

  MEGALITH_INLINE void rescale(int64_t r, float now) {
    const float factor = exponential(relative_to[r] - now);
    float *sum = sums + r * padded, *total = totals + r * kLanes;
    for (int64_t d = 0; d < padded; d += kLanes) store_vector(sum + d, load_vector(sum + d) * factor);
    store_vector(total, load_vector(total) * factor);
    relative_to[r] = now;
  }

  /// sums += P V of a group over the keys that it sees, of the `packed` keys of a block.
  MEGALITH_INLINE void add_values(int64_t r, int64_t rows, Visible seen, int64_t packed,
                                  const uint32_t* values) {
    const int64_t panel_units = operand_units<Unit>(packed), row_units = operand_units<Unit>(kKeyBlock);
    const int64_t first = first_unit<Unit>(seen), units = operand_units<Unit>(seen.high) - first;
    for (int64_t d = 0; d < head_size; d += kPanel) {
      multiply_rows_by<Unit>(rows, smaller(kPanel, head_size - d), units, probabilities + first, row_units,
                             values + d * panel_units + first * kPanel, sums + r * padded + d, padded,
                             StoreMode::add);
    }
  }

  /// One block of keys and values for all rows, group by group; seen(r) tells what row r sees,
  /// shape(r, products) makes its products logits, factors(r) gives its dropout factors or null.
  template <class Seen, class Shape, class Factors>
  MEGALITH_INLINE void add_block(int64_t rows, bool whole, int64_t packed, const uint32_t* keys,
                                 const uint32_t* values, float scale, const Seen& seen, const Shape& shape,
                                 const Factors& factors) {
    for (int64_t first = 0; first < rows; first += kGroupRows<Unit>) {
      const int64_t count = smaller(kGroupRows<Unit>, rows - first);
      const Visible group = whole ? Visible{0, kKeyBlock} : seen_by_some(first, count, seen);
      if (group.none()) continue;
      multiply_keys(first, count, group, keys);
      for (int64_t r = 0; r < count; ++r) {
        shape(first + r, logits + r * kKeyBlock);
        bound(first + r, logits + r * kKeyBlock, seen(first + r), scale);
      }
      for (int64_t r = 0; r < count; ++r) {
        exponentiate(first + r, logits + r * kKeyBlock, seen(first + r), scale, factors(first + r), r);
      }
      add_values(first, count, group, packed, values);
    }
  }

  template <class T>
  MEGALITH_INLINE void finish(int64_t r, T* out, float* log_sum_exp) {
    const float total = sum_of_lanes(load_vector(totals + r * kLanes)), inverse = 1.0f / total;
    const float* sum = sums + r * padded;
#pragma omp simd
    for (int64_t d = 0; d < head_size; ++d) out[d] = store<T>(sum[d] * inverse);
    if (log_sum_exp != nullptr) *log_sum_exp = relative_to[r] + __builtin_logf(total);
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
  const BlockRange range(visible, begin, end);
  const bool plain = g.plain();
  const float scale = plain ? g.scale : 1.0f;
  float buffer[kMaskBuffer];
  for (int64_t at = range.some.begin / kKeyBlock * kKeyBlock; at < range.some.end; at += kKeyBlock) {
    const uint32_t* keys = static_cast<const uint32_t*>(packed) +
                           at / kKeyBlock * (key_words + row_block_words<Unit>(g.head_size));
    block.add_block(
        rows, range.whole(at), smaller(kKeyBlock, g.tokens - at), keys, keys + key_words, scale,
        [&](int64_t r) MEGALITH_INLINE_LAMBDA { return visible_keys(visible[begin + r], at); },
        [&](int64_t r, float* products) MEGALITH_INLINE_LAMBDA {
          if (!plain) shape_logits(g, head, at - (begin + r), products);
        },
        [&](int64_t r) MEGALITH_INLINE_LAMBDA -> const float* {
          if (!mask.active) return nullptr;
          return mask_factors(mask, static_cast<uint64_t>(batch * g.tokens + begin + r),
                              static_cast<uint64_t>(head * g.tokens + at), kKeyBlock, buffer);
        });
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
  const BlockRange range(visible, first_row / group, (last_row - 1) / group + 1);
  const bool plain = g.plain();
  const float scale = plain ? g.scale : 1.0f;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = (first_row + r) / group, head = kv_head * group + (first_row + r) % group;
    load_rows<Unit>(static_cast<const T*>(qkv) + token * g.columns + head * g.head_size, g.columns, r, 1,
                    g.head_size, block.queries);
  }
  block.start(rows);
  for (int64_t at = range.some.begin / kKeyBlock * kKeyBlock; at < range.some.end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, range.some.end - at);
    const int64_t offset = at * stride + kv_head * g.head_size;
    pack_keys_and_values<Unit, T>(static_cast<const T*>(keys) + offset,
                                  static_cast<const T*>(values) + offset, stride, 0, count, count,
                                  g.head_size, packed);
    block.add_block(
        rows, range.whole(at), count, packed, packed + key_words, scale,
        [&](int64_t r) MEGALITH_INLINE_LAMBDA { return visible_keys(visible[(first_row + r) / group], at); },
        [&](int64_t r, float* products) MEGALITH_INLINE_LAMBDA {
          const int64_t token = (first_row + r) / group, head = kv_head * group + (first_row + r) % group;
          if (!plain) shape_logits(g, head, at - (past + token), products);
        },
        [](int64_t) MEGALITH_INLINE_LAMBDA -> const float* { return nullptr; });
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
