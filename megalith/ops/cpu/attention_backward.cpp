// Attention backward: the gradients of one key/value head and of the queries that share it.
#include "megalith/ops/cpu/attention_tiles.h"
#include "megalith/ops/cpu/families.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

constexpr int64_t kQueryBlock = 96;

template <class Unit>
struct BackwardBuffers {
  int64_t head_size, padded, blocks;
  uint32_t *key_columns, *value_columns, *key_rows;    // packed, block by block
  float *dkeys, *dvalues;                              // [blocks * 64][padded]
  uint32_t *queries, *douts, *query_rows, *dout_rows;  // of one query block
  float *dqueries, *delta;
  float *probabilities, *dlogits;  // [96][64]
  uint32_t *probabilities_across, *dlogits_across, *dlogits_rounded;

  BackwardBuffers(Scratch& scratch, int64_t tokens, int64_t size)
      : head_size(size), padded(padded_size(size)), blocks((tokens + kKeyBlock - 1) / kKeyBlock) {
    constexpr bool kPairs = Unit::kElements > 1;
    key_columns = scratch.take<uint32_t>(blocks * column_block_words<Unit>(size));
    value_columns = scratch.take<uint32_t>(blocks * column_block_words<Unit>(size));
    key_rows = scratch.take<uint32_t>(blocks * row_block_words<Unit>(size));
    dkeys = scratch.take<float>(blocks * kKeyBlock * padded);
    dvalues = scratch.take<float>(blocks * kKeyBlock * padded);
    queries = scratch.take<uint32_t>(kQueryBlock * units_of<Unit>(size));
    douts = scratch.take<uint32_t>(kQueryBlock * units_of<Unit>(size));
    query_rows = scratch.take<uint32_t>(kQueryBlock / Unit::kElements * padded);
    dout_rows = scratch.take<uint32_t>(kQueryBlock / Unit::kElements * padded);
    dqueries = scratch.take<float>(kQueryBlock * padded);
    delta = scratch.take<float>(kQueryBlock);
    probabilities = scratch.take<float>((kQueryBlock + 1) * kKeyBlock);
    dlogits = scratch.take<float>((kQueryBlock + 1) * kKeyBlock);
    const auto rounded = [&](float* same) {
      return kPairs ? scratch.take<uint32_t>(kQueryBlock * kKeyBlock / 2) : reinterpret_cast<uint32_t*>(same);
    };
    probabilities_across = rounded(probabilities);
    dlogits_across = rounded(dlogits);
    dlogits_rounded = rounded(dlogits);
  }
};

template <class Unit>
int64_t backward_scratch_bytes(int64_t tokens, int64_t head_size) {
  Scratch scratch{nullptr};
  BackwardBuffers<Unit> buffers(scratch, tokens, head_size);
  return scratch.used;
}

/// With P the probabilities, M the dropout factors: dV = (P M)^T dO; dP = M (dO V^T);
/// dS = P (dP - rowsum(dO O)) scale; dQ = dS K; dK = dS^T Q.
template <class Unit, class T>
void backward(const AttentionGeometry& g, const void* qkv_raw, const int32_t* document_starts,
              const MaskSource& mask, int64_t batch, int64_t kv_head, const void* out_raw,
              const float* log_sum_exp, const void* dout_raw, void* dqkv_raw, void* scratch_raw) {
  Scratch scratch{static_cast<char*>(scratch_raw)};
  const BackwardBuffers<Unit> s(scratch, g.tokens, g.head_size);
  const int64_t size = g.head_size, padded = s.padded, units = units_of<Unit>(size);
  const int64_t column_words = column_block_words<Unit>(size), row_words = row_block_words<Unit>(size);
  const int64_t out_stride = g.heads * size, group = g.heads / g.kv_heads;
  const T* qkv = static_cast<const T*>(qkv_raw) + batch * g.tokens * g.columns;
  T* dqkv = static_cast<T*>(dqkv_raw) + batch * g.tokens * g.columns;
  const T* out = static_cast<const T*>(out_raw) + batch * g.tokens * out_stride;
  const T* dout = static_cast<const T*>(dout_raw) + batch * g.tokens * out_stride;
  const int64_t key_column = (g.heads + kv_head) * size, value_column = key_column + g.kv_heads * size;
  const int32_t* starts = document_starts == nullptr ? nullptr : document_starts + batch * g.tokens;

  for (int64_t at = 0; at < g.tokens; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, g.tokens - at), block = at / kKeyBlock;
    const T *keys = qkv + at * g.columns + key_column, *values = qkv + at * g.columns + value_column;
    pack_b_columns<Unit, T>(keys, g.columns, size, count, units_of<Unit>(size),
                            s.key_columns + block * column_words);
    pack_b_columns<Unit, T>(values, g.columns, size, count, units_of<Unit>(size),
                            s.value_columns + block * column_words);
    pack_b_rows<Unit, T>(keys, g.columns, count, size, units_of<Unit>(count), s.key_rows + block * row_words);
  }
  for (int64_t i = 0; i < s.blocks * kKeyBlock * padded; ++i) s.dkeys[i] = s.dvalues[i] = 0;

  float buffer[kMaskBuffer];
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* normaliser = log_sum_exp + (batch * g.heads + head) * g.tokens;
    for (int64_t begin = 0; begin < g.tokens; begin += kQueryBlock) {
      const int64_t end = smaller(begin + kQueryBlock, g.tokens), rows = end - begin;
      const int64_t row_units = units_of<Unit>(rows);
      const T* q = qkv + begin * g.columns + head * size;
      const T* d = dout + begin * out_stride + head * size;
      load_rows<Unit>(q, g.columns, rows, size, s.queries);
      load_rows<Unit>(d, out_stride, rows, size, s.douts);
      pack_b_rows<Unit, T>(q, g.columns, rows, size, units_of<Unit>(rows), s.query_rows);
      pack_b_rows<Unit, T>(d, out_stride, rows, size, units_of<Unit>(rows), s.dout_rows);
      int64_t first = starts == nullptr ? 0 : begin;
      for (int64_t r = 0; r < rows; ++r) {
        const T* o = out + (begin + r) * out_stride + head * size;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < size; ++i) sum += load(o[i]) * load(d[r * out_stride + i]);
        s.delta[r] = sum;
        if (starts != nullptr) first = smaller<int64_t>(first, starts[begin + r]);
      }
      for (int64_t i = 0; i < rows * padded; ++i) s.dqueries[i] = 0;

      for (int64_t at = first / kKeyBlock * kKeyBlock; at < end; at += kKeyBlock) {
        const int64_t count = smaller(kKeyBlock, end - at), packed = smaller(kKeyBlock, g.tokens - at);
        const int64_t block = at / kKeyBlock;
        multiply<Unit>(rows, count, units, s.queries, units * 4, 4, s.key_columns + block * column_words,
                       s.probabilities, kKeyBlock, false);
        multiply<Unit>(rows, count, units, s.douts, units * 4, 4, s.value_columns + block * column_words,
                       s.dlogits, kKeyBlock, false);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t query = begin + r;
          const Visible visible = visible_keys(query, starts == nullptr ? 0 : starts[query], at);
          float *p_row = s.probabilities + r * kKeyBlock, *d_row = s.dlogits + r * kKeyBlock;
          const float log_sum = normaliser[query], delta = s.delta[r], scale = g.scale;
          if (mask.active) {
            const float* factors =
                mask_factors(mask, static_cast<uint64_t>(batch * g.tokens + query),
                             static_cast<uint64_t>(head * g.tokens + at), kKeyBlock, buffer);
#pragma omp simd
            for (int32_t j = 0; j < kKeyBlock; ++j) {
              const bool seen = (j >= visible.low) & (j < visible.high);
              const float p = seen ? exponential(p_row[j] * scale - log_sum) : 0.0f;
              const float gradient = p * (d_row[j] * factors[j] - delta) * scale;
              p_row[j] = p * factors[j];
              d_row[j] = seen ? gradient : 0.0f;
            }
          } else {
#pragma omp simd
            for (int32_t j = 0; j < kKeyBlock; ++j) {
              const bool seen = (j >= visible.low) & (j < visible.high);
              const float p = seen ? exponential(p_row[j] * scale - log_sum) : 0.0f;
              const float gradient = p * (d_row[j] - delta) * scale;
              p_row[j] = p;
              d_row[j] = seen ? gradient : 0.0f;
            }
          }
        }
        if constexpr (Unit::kElements > 1) {
          if (rows % 2 != 0) {
            for (int64_t j = 0; j < kKeyBlock; ++j) {
              s.probabilities[rows * kKeyBlock + j] = s.dlogits[rows * kKeyBlock + j] = 0;
            }
          }
          for (int64_t r = 0; r < rows; r += 2) {
            const float *p_row = s.probabilities + r * kKeyBlock, *d_row = s.dlogits + r * kKeyBlock;
            round_row_pair(p_row, p_row + kKeyBlock, kKeyBlock, s.probabilities_across + r / 2 * kKeyBlock);
            round_row_pair(d_row, d_row + kKeyBlock, kKeyBlock, s.dlogits_across + r / 2 * kKeyBlock);
          }
          for (int64_t r = 0; r < rows; ++r) {
            round_row<Unit>(s.dlogits + r * kKeyBlock, kKeyBlock, s.dlogits_rounded + r * kKeyBlock / 2);
          }
        }
        for (int64_t c = 0; c < size; c += kPanel) {
          const int64_t width = smaller(kPanel, size - c);
          multiply<Unit>(count, width, row_units, s.probabilities_across, 4, kKeyBlock * 4,
                         s.dout_rows + c * row_units, s.dvalues + at * padded + c, padded, true);
          multiply<Unit>(count, width, row_units, s.dlogits_across, 4, kKeyBlock * 4,
                         s.query_rows + c * row_units, s.dkeys + at * padded + c, padded, true);
          multiply<Unit>(rows, width, units_of<Unit>(count), s.dlogits_rounded, block_units<Unit>() * 4, 4,
                         s.key_rows + block * row_words + c * units_of<Unit>(packed), s.dqueries + c, padded,
                         true);
        }
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
void add_typed(AttentionKernels& kernels) {
  kernels.backward_scratch_bytes = backward_scratch_bytes<Unit>;
  kernels.backward = backward<Unit, T>;
}

}  // namespace

void add_attention_backward_kernels(KernelTable& table) {
  add_typed<SingleUnit, float>(table.attention[0]);
#ifdef __AVX512BF16__
  add_typed<PairUnit, BrainFloat>(table.attention[1]);
#else
  add_typed<SingleUnit, BrainFloat>(table.attention[1]);
#endif
  add_typed<SingleUnit, HalfFloat>(table.attention[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
