// Attention backward: the gradients of one key/value head and of the queries that share it.
#pragma once

#include "megalith/ops/cpu/attention_operands.h"

namespace megalith::cpu::MEGALITH_LEVEL {

template <class Unit>
inline constexpr int64_t kBackwardBlock =
    kUsesTiles<Unit> ? 64 : 48;  // query rows; whole tiles of the inner kernel

template <class Unit>
struct BackwardBuffers {
  int64_t head_size, padded, blocks;
  uint32_t *key_columns, *value_columns, *key_rows;    // packed, block by block
  float *dkeys, *dvalues;                              // [blocks * 64][padded]
  uint32_t *queries, *douts, *query_rows, *dout_rows;  // of one query block
  float *dqueries, *delta;
  float *logits, *dlogits;  // products over one query and one key block, before the softmax's part
  uint32_t *probabilities_across, *dlogits_across, *dlogits_rows, *turned;

  BackwardBuffers(Scratch& scratch, int64_t tokens, int64_t size)
      : head_size(size), padded(padded_size(size)), blocks((tokens + kKeyBlock - 1) / kKeyBlock) {
    const int64_t units = operand_units<Unit>(size), rows_units = operand_units<Unit>(kBackwardBlock<Unit>);
    key_columns = scratch.take<uint32_t>(blocks * column_block_words<Unit>(size));
    value_columns = scratch.take<uint32_t>(blocks * column_block_words<Unit>(size));
    key_rows = scratch.take<uint32_t>(blocks * row_block_words<Unit>(size));
    dkeys = scratch.take<float>(blocks * kKeyBlock * padded);
    dvalues = scratch.take<float>(blocks * kKeyBlock * padded);
    queries = scratch.take<uint32_t>(row_words<Unit>(kBackwardBlock<Unit>, units));
    douts = scratch.take<uint32_t>(row_words<Unit>(kBackwardBlock<Unit>, units));
    query_rows = scratch.take<uint32_t>(rows_units * padded);
    dout_rows = scratch.take<uint32_t>(rows_units * padded);
    dqueries = scratch.take<float>(kBackwardBlock<Unit> * padded);
    delta = scratch.take<float>(kBackwardBlock<Unit>);
    logits = scratch.take<float>(kBackwardBlock<Unit> * kKeyBlock);
    dlogits = scratch.take<float>(kBackwardBlock<Unit> * kKeyBlock);
    if (Unit::kElements == 1) {
      probabilities_across = reinterpret_cast<uint32_t*>(logits);
      dlogits_across = dlogits_rows = reinterpret_cast<uint32_t*>(dlogits);
    } else {
      probabilities_across = scratch.take<uint32_t>(rows_units * kKeyBlock);
      dlogits_across = scratch.take<uint32_t>(rows_units * kKeyBlock);
      dlogits_rows =
          scratch.take<uint32_t>(row_words<Unit>(kBackwardBlock<Unit>, operand_units<Unit>(kKeyBlock)));
    }
    turned = kUsesTiles<Unit> ? scratch.take<uint32_t>(rows_units * kKeyBlock) : nullptr;
  }
};

template <class Unit>
int64_t backward_scratch_bytes(int64_t tokens, int64_t head_size) {
  Scratch scratch{nullptr};
  BackwardBuffers<Unit> buffers(scratch, tokens, head_size);
  return scratch.used;
}

struct RowGradient {
  KeyRow probabilities, dlogits;
};

/// P and dS of one row over one key block; both zero where nothing is visible. `logits` times `logit_scale`
/// are the logits.
template <class Unit>
MEGALITH_INLINE RowGradient row_gradient(const float* logits, const float* dprobabilities, Visible visible,
                                         const float* factors, float logit_scale, float scale, float log_sum,
                                         float delta) {
  RowGradient row = {};
  if (visible.none()) return row;
#pragma GCC unroll 8
  for (int64_t v = 0; v < kRowVectors; ++v) {
    Vector p = shifted_exponential<Unit>(load_vector(logits + v * kLanes), logit_scale, log_sum);
    Vector gradient = load_vector(dprobabilities + v * kLanes);
    if (!visible.all()) {
      // Selections and not products: what lies outside may be anything.
      const LaneIndex seen = visible_lanes(visible, v);
      p = seen ? p : Vector{};
      gradient = seen ? gradient : Vector{};
    }
    if (factors != nullptr) {
      const Vector factor = load_vector(factors + v * kLanes);
      row.dlogits.part[v] = p * (gradient * factor - delta) * scale;
      row.probabilities.part[v] = p * factor;
    } else {
      row.dlogits.part[v] = p * (gradient - delta) * scale;
      row.probabilities.part[v] = p;
    }
  }
  return row;
}

struct RowRange {
  int64_t first, last;  // behind the last row
};

/// The rows from the first to the last that see one of `keys`; seen(r) tells what row r of `rows` sees.
template <class Seen>
MEGALITH_INLINE RowRange rows_that_see(Visible keys, int64_t rows, const Seen& seen) {
  RowRange range{rows, 0};
  for (int64_t r = 0; r < rows; ++r) {
    const Visible row = seen(r);
    if (row.none() || row.low >= keys.high || row.high <= keys.low) continue;
    range.first = smaller(range.first, r);
    range.last = r + 1;
  }
  return range;
}

/// The soft cap's part of dS: d(cap tanh(x / cap)) / dx = 1 - (logit / cap)^2.
inline void cap_gradient(const float* logits, Visible visible, float softcap, KeyRow& dlogits) {
  for (int64_t v = 0; v < kRowVectors; ++v) {
    const Vector ratio = load_vector(logits + v * kLanes) / softcap;
    const Vector capped = dlogits.part[v] * (1.0f - ratio * ratio);
    dlogits.part[v] = visible_lanes(visible, v) ? capped : Vector{};
  }
}

/// With P the probabilities, M the dropout factors: dV = (P M)^T dO; dP = M (dO V^T);
/// dS = P (dP - rowsum(dO O)) scale, times the soft cap's derivative; dQ = dS K; dK = dS^T Q.
template <class Unit, class T>
void attention_backward_head(const AttentionGeometry& g, const void* qkv_raw, const KeyRange* visible,
                             const MaskSource& mask, int64_t batch, int64_t kv_head, const void* out_raw,
                             const float* log_sum_exp, const void* dout_raw, void* dqkv_raw,
                             void* scratch_raw) {
  Scratch scratch{static_cast<char*>(scratch_raw)};
  const BackwardBuffers<Unit> s(scratch, g.tokens, g.head_size);
  const int64_t size = g.head_size, padded = s.padded, units = operand_units<Unit>(size);
  const int64_t column_words = column_block_words<Unit>(size), key_row_words = row_block_words<Unit>(size);
  const int64_t out_stride = g.heads * size, group = g.heads / g.kv_heads;
  const T* qkv = static_cast<const T*>(qkv_raw) + batch * g.tokens * g.columns;
  T* dqkv = static_cast<T*>(dqkv_raw) + batch * g.tokens * g.columns;
  const T* out = static_cast<const T*>(out_raw) + batch * g.tokens * out_stride;
  const T* dout = static_cast<const T*>(dout_raw) + batch * g.tokens * out_stride;
  const int64_t key_column = (g.heads + kv_head) * size, value_column = key_column + g.kv_heads * size;
  const bool plain = g.plain();
  const float logit_scale = plain ? g.scale : 1.0f;

  for (int64_t at = 0; at < g.tokens; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, g.tokens - at), block = at / kKeyBlock;
    const T *keys = qkv + at * g.columns + key_column, *values = qkv + at * g.columns + value_column;
    pack_b_columns<Unit, T>(keys, g.columns, size, count, units, s.key_columns + block * column_words);
    pack_b_columns<Unit, T>(values, g.columns, size, count, units, s.value_columns + block * column_words);
    pack_b_rows<Unit, T>(keys, g.columns, count, size, operand_units<Unit>(count),
                         s.key_rows + block * key_row_words);
  }
  for (int64_t i = 0; i < s.blocks * kKeyBlock * padded; ++i) s.dkeys[i] = s.dvalues[i] = 0;

  float buffer[kMaskBuffer];
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* normaliser = log_sum_exp + (batch * g.heads + head) * g.tokens;
    for (int64_t begin = 0; begin < g.tokens; begin += kBackwardBlock<Unit>) {
      const int64_t end = smaller(begin + kBackwardBlock<Unit>, g.tokens), rows = end - begin;
      const int64_t rows_units = operand_units<Unit>(rows);
      const T* q = qkv + begin * g.columns + head * size;
      const T* d = dout + begin * out_stride + head * size;
      load_rows<Unit>(q, g.columns, 0, rows, size, s.queries);
      load_rows<Unit>(d, out_stride, 0, rows, size, s.douts);
      pack_b_rows<Unit, T>(q, g.columns, rows, size, rows_units, s.query_rows);
      pack_b_rows<Unit, T>(d, out_stride, rows, size, rows_units, s.dout_rows);
      const BlockRange range(visible, begin, end);
      for (int64_t r = 0; r < rows; ++r) {
        const T* o = out + (begin + r) * out_stride + head * size;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < size; ++i) sum += load(o[i]) * load(d[r * out_stride + i]);
        s.delta[r] = sum;
      }
      for (int64_t i = 0; i < rows * padded; ++i) s.dqueries[i] = 0;

      for (int64_t at = range.some.begin / kKeyBlock * kKeyBlock; at < range.some.end; at += kKeyBlock) {
        const int64_t packed = smaller(kKeyBlock, g.tokens - at), block = at / kKeyBlock;
        const bool whole = range.whole(at);
        const auto seen = [&](int64_t r)
                              MEGALITH_INLINE_LAMBDA { return visible_keys(visible[begin + r], at); };
        const auto each_group = [&](auto&& body) MEGALITH_INLINE_LAMBDA {
          for (int64_t r = 0; r < rows; r += kGroupRows<Unit>) {
            const int64_t height = smaller(kGroupRows<Unit>, rows - r);
            const Visible some = whole ? Visible{0, kKeyBlock} : seen_by_some(r, height, seen);
            if (!some.none()) body(r, height, some);
          }
        };
        each_group([&](int64_t r, int64_t height, Visible some) {
          const int64_t first = first_column<Unit>(some), columns = some.high - first;
          multiply_rows_by<Unit>(height, columns, units, s.queries + r * units, units,
                                 s.key_columns + block * column_words + first,
                                 s.logits + r * kKeyBlock + first, kKeyBlock, StoreMode::assign);
          multiply_rows_by<Unit>(height, columns, units, s.douts + r * units, units,
                                 s.value_columns + block * column_words + first,
                                 s.dlogits + r * kKeyBlock + first, kKeyBlock, StoreMode::assign);
        });
        const auto gradient_of = [&](int64_t r) MEGALITH_INLINE_LAMBDA {
          const int64_t query = begin + r;
          const float* factors =
              !mask.active ? nullptr
                           : mask_factors(mask, static_cast<uint64_t>(batch * g.tokens + query),
                                          static_cast<uint64_t>(head * g.tokens + at), kKeyBlock, buffer);
          float* logits = s.logits + r * kKeyBlock;
          if (!plain) shape_logits(g, head, at - query, logits);
          RowGradient row = row_gradient<Unit>(logits, s.dlogits + r * kKeyBlock, seen(r), factors,
                                               logit_scale, g.scale, normaliser[query], s.delta[r]);
          if (g.softcap > 0) cap_gradient(logits, seen(r), g.softcap, row.dlogits);
          return row;
        };
        if constexpr (Unit::kElements == 1) {
          for (int64_t r = 0; r < rows; ++r) {
            const RowGradient row = gradient_of(r);
            put_row<Unit>(row.probabilities, r, s.probabilities_across);
            put_row<Unit>(row.dlogits, r, s.dlogits_rows);
          }
        } else {
          // Pairs of rows, up to whole units; rows that are not there are zero.
          for (int64_t r = 0; r < 2 * rows_units; r += 2) {
            const RowGradient even = r < rows ? gradient_of(r) : RowGradient{};
            if (r < rows) put_row<Unit>(even.dlogits, r, s.dlogits_rows);
            const RowGradient odd = r + 1 < rows ? gradient_of(r + 1) : RowGradient{};
            if (r + 1 < rows) put_row<Unit>(odd.dlogits, r + 1, s.dlogits_rows);
            put_across<Unit>(even.probabilities, odd.probabilities, r / 2, s.probabilities_across);
            put_across<Unit>(even.dlogits, odd.dlogits, r / 2, s.dlogits_across);
          }
        }
        const int64_t count = smaller(kKeyBlock, range.some.end - at);
        const auto add_across = [&](const uint32_t* across, const uint32_t* b, float* c) {
          if constexpr (kUsesTiles<Unit>) {
            turn_across(rows_units, across, s.turned);
            for (int64_t column = 0; column < size; column += kPanel) {
              multiply_rows_by<Unit>(count, smaller(kPanel, size - column), rows_units, s.turned, rows_units,
                                     b + column * rows_units, c + column, padded, StoreMode::add);
            }
          } else {
            for (int64_t key = 0; key < count; key += kGroupRows<Unit>) {
              const int64_t height = smaller(kGroupRows<Unit>, count - key);
              const RowRange queries =
                  whole ? RowRange{0, rows} : rows_that_see(Visible{key, key + height}, rows, seen);
              if (queries.last <= queries.first) continue;
              const int64_t first = queries.first / Unit::kElements;
              for (int64_t column = 0; column < size; column += kPanel) {
                multiply<Unit>(height, smaller(kPanel, size - column), units_of<Unit>(queries.last) - first,
                               across + first * kKeyBlock + key, 4, kKeyBlock * 4,
                               b + column * rows_units + first * kPanel, c + key * padded + column, padded,
                               StoreMode::add);
              }
            }
          }
        };
        add_across(s.probabilities_across, s.dout_rows, s.dvalues + at * padded);
        add_across(s.dlogits_across, s.query_rows, s.dkeys + at * padded);
        each_group([&](int64_t r, int64_t height, Visible some) {
          const int64_t first = first_unit<Unit>(some), row_units = operand_units<Unit>(kKeyBlock);
          for (int64_t column = 0; column < size; column += kPanel) {
            multiply_rows_by<Unit>(
                height, smaller(kPanel, size - column), operand_units<Unit>(some.high) - first,
                s.dlogits_rows + r * row_units + first, row_units,
                s.key_rows + block * key_row_words + column * operand_units<Unit>(packed) + first * kPanel,
                s.dqueries + r * padded + column, padded, StoreMode::add);
          }
        });
      }
      for (int64_t r = 0; r < rows; ++r) {
        T* to = dqkv + (begin + r) * g.columns + head * size;
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) to[i] = store<T>(s.dqueries[r * padded + i]);
      }
    }
  }
  for (int64_t t = 0; t < g.tokens; ++t) {
    T *dk = dqkv + t * g.columns + key_column, *dv = dqkv + t * g.columns + value_column;
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) {
      dk[i] = store<T>(s.dkeys[t * padded + i]);
      dv[i] = store<T>(s.dvalues[t * padded + i]);
    }
  }
}

template <class Unit, class T>
void set_attention_backward(AttentionKernels& kernels) {
  kernels.backward_scratch_bytes = backward_scratch_bytes<Unit>;
  kernels.backward = attention_backward_head<Unit, T>;
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
