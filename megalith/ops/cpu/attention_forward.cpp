// Attention forward: one block of query rows against blocks of keys with a running softmax.
#include "megalith/ops/cpu/attention_tiles.h"
#include "megalith/ops/cpu/families.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

constexpr int64_t kQueryBlock = 48;

/// State of a block of query rows: the weighted sum of values so far, the largest logit and the sum of
/// exponentials relative to it.
template <class Unit>
struct QueryBlock {
  int64_t head_size, padded;
  uint32_t* queries;
  float* logits;
  uint32_t* rounded;  // probabilities as units; the logits' own storage where a unit is one number
  float* sums;
  float* largest;
  float* totals;

  QueryBlock(Scratch& scratch, int64_t size) : head_size(size), padded(padded_size(size)) {
    queries = scratch.take<uint32_t>(kQueryBlock * units_of<Unit>(size));
    logits = scratch.take<float>(kQueryBlock * kKeyBlock);
    rounded = Unit::kElements == 1 ? reinterpret_cast<uint32_t*>(logits)
                                   : scratch.take<uint32_t>(kQueryBlock * block_units<Unit>());
    sums = scratch.take<float>(kQueryBlock * padded);
    largest = scratch.take<float>(kQueryBlock);
    totals = scratch.take<float>(kQueryBlock);
  }

  void start(int64_t rows) {
    for (int64_t i = 0; i < rows * padded; ++i) sums[i] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      largest[r] = -__builtin_inff();
      totals[r] = 0;
    }
  }

  /// Folds the logits of one row over one key block into its running softmax and leaves the probabilities
  /// (masked by dropout) in their place.
  MEGALITH_INLINE void fold(int64_t r, Visible visible, float scale, const float* factors) {
    float* row = logits + r * kKeyBlock;
    float block_largest = -__builtin_inff();
#pragma omp simd reduction(max : block_largest)
    for (int32_t j = 0; j < kKeyBlock; ++j) {
      const float logit = row[j] * scale;
      const float seen = (j >= visible.low) & (j < visible.high) ? logit : -__builtin_inff();
      row[j] = seen;
      block_largest = larger(block_largest, seen);
    }
    if (visible.high <= visible.low) {
      for (int64_t j = 0; j < kKeyBlock; ++j) row[j] = 0;
      return;
    }
    const float before = largest[r], now = larger(before, block_largest);
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int32_t j = 0; j < kKeyBlock; ++j) {
      const float p = exponential(row[j] - now);
      row[j] = p;
      total += p;
    }
    if (now != before) {
      const float factor = exponential(before - now);
      float* sum = sums + r * padded;
#pragma omp simd
      for (int64_t d = 0; d < padded; ++d) sum[d] *= factor;
      totals[r] *= factor;
      largest[r] = now;
    }
    totals[r] += total;
    if (factors != nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < kKeyBlock; ++j) row[j] *= factors[j];
    }
  }

  /// logits = Q K^T over the first `columns` keys of a block.
  MEGALITH_INLINE void multiply_keys(int64_t rows, int64_t columns, const uint32_t* keys) {
    const int64_t units = units_of<Unit>(head_size);
    multiply<Unit>(rows, columns, units, queries, units * 4, 4, keys, logits, kKeyBlock, false);
  }

  /// sums += P V over the first `count` of the `packed` keys of a block.
  MEGALITH_INLINE void add_values(int64_t rows, int64_t count, int64_t packed, const uint32_t* values) {
    if constexpr (Unit::kElements > 1) {
      for (int64_t r = 0; r < rows; ++r) {
        round_row<Unit>(logits + r * kKeyBlock, kKeyBlock, rounded + r * block_units<Unit>());
      }
    }
    const int64_t panel_units = units_of<Unit>(packed);
    for (int64_t d = 0; d < head_size; d += kPanel) {
      multiply<Unit>(rows, smaller(kPanel, head_size - d), units_of<Unit>(count), rounded,
                     block_units<Unit>() * 4, 4, values + d * panel_units, sums + d, padded, true);
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
void pack(const void* k, const void* v, int64_t row_stride, int64_t begin, int64_t end, int64_t keys,
          int64_t head_size, void* packed) {
  const int64_t block_words = column_block_words<Unit>(head_size) + row_block_words<Unit>(head_size);
  for (int64_t at = begin; at < end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, keys - at);
    uint32_t* to = static_cast<uint32_t*>(packed) + at / kKeyBlock * block_words;
    pack_b_columns<Unit, T>(static_cast<const T*>(k) + at * row_stride, row_stride, head_size, count,
                            units_of<Unit>(head_size), to);
    pack_b_rows<Unit, T>(static_cast<const T*>(v) + at * row_stride, row_stride, count, head_size,
                         units_of<Unit>(count), to + column_block_words<Unit>(head_size));
  }
}

template <class Unit, class T>
void forward(const AttentionGeometry& g, const void* q, const void* packed, const int32_t* document_starts,
             const MaskSource& mask, int64_t batch, int64_t head, int64_t begin, int64_t end, void* out,
             float* log_sum_exp, void* scratch_raw) {
  Scratch scratch{static_cast<char*>(scratch_raw)};
  QueryBlock<Unit> block(scratch, g.head_size);
  const int64_t rows = end - begin, out_stride = g.heads * g.head_size;
  const int64_t block_words = column_block_words<Unit>(g.head_size) + row_block_words<Unit>(g.head_size);
  const int32_t* starts = document_starts == nullptr ? nullptr : document_starts + batch * g.tokens;
  load_rows<Unit>(static_cast<const T*>(q) + (batch * g.tokens + begin) * g.columns + head * g.head_size,
                  g.columns, rows, g.head_size, block.queries);
  block.start(rows);
  int64_t first = starts == nullptr ? 0 : begin;
  if (starts != nullptr) {
    for (int64_t t = begin; t < end; ++t) first = smaller<int64_t>(first, starts[t]);
  }
  float buffer[kMaskBuffer];
  const float* factors = nullptr;
  for (int64_t at = first / kKeyBlock * kKeyBlock; at < end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, end - at);
    const uint32_t* keys = static_cast<const uint32_t*>(packed) + at / kKeyBlock * block_words;
    block.multiply_keys(rows, count, keys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t query = begin + r;
      if (mask.active) {
        factors = mask_factors(mask, static_cast<uint64_t>(batch * g.tokens + query),
                               static_cast<uint64_t>(head * g.tokens + at), kKeyBlock, buffer);
      }
      block.fold(r, visible_keys(query, starts == nullptr ? 0 : starts[query], at), g.scale, factors);
    }
    block.add_values(rows, count, smaller(kKeyBlock, g.tokens - at),
                     keys + column_block_words<Unit>(g.head_size));
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* to = static_cast<T*>(out) + (batch * g.tokens + begin + r) * out_stride + head * g.head_size;
    block.finish(r, to, log_sum_exp + (batch * g.heads + head) * g.tokens + begin + r);
  }
}

template <class Unit, class T>
void cached(const AttentionGeometry& g, const void* qkv, int64_t past, const void* keys, const void* values,
            int64_t kv_head, int64_t first_token, int64_t last_token, void* out, void* scratch_raw) {
  Scratch scratch{static_cast<char*>(scratch_raw)};
  QueryBlock<Unit> block(scratch, g.head_size);
  uint32_t* packed =
      scratch.take<uint32_t>(column_block_words<Unit>(g.head_size) + row_block_words<Unit>(g.head_size));
  const int64_t group = g.heads / g.kv_heads, rows = (last_token - first_token) * group;
  const int64_t units = units_of<Unit>(g.head_size), stride = g.kv_heads * g.head_size;
  const int64_t end = past + last_token;  // keys seen by the last of these tokens
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = first_token + r / group, head = kv_head * group + r % group;
    load_rows<Unit>(static_cast<const T*>(qkv) + token * g.columns + head * g.head_size, g.columns, 1,
                    g.head_size, block.queries + r * units);
  }
  block.start(rows);
  for (int64_t at = 0; at < end; at += kKeyBlock) {
    const int64_t count = smaller(kKeyBlock, end - at), offset = at * stride + kv_head * g.head_size;
    pack<Unit, T>(static_cast<const T*>(keys) + offset, static_cast<const T*>(values) + offset, stride, 0,
                  count, count, g.head_size, packed);
    block.multiply_keys(rows, count, packed);
    for (int64_t r = 0; r < rows; ++r) {
      block.fold(r, visible_keys(past + first_token + r / group, 0, at), g.scale, nullptr);
    }
    block.add_values(rows, count, count, packed + column_block_words<Unit>(g.head_size));
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = first_token + r / group, head = kv_head * group + r % group;
    block.finish(r, static_cast<T*>(out) + (token * g.heads + head) * g.head_size, nullptr);
  }
}

template <class Unit, class T>
void add_typed(AttentionKernels& kernels) {
  kernels.packed_bytes = packed_bytes<Unit>;
  kernels.forward_scratch_bytes = forward_scratch_bytes<Unit>;
  kernels.cache_scratch_bytes = cache_scratch_bytes<Unit>;
  kernels.query_block = kQueryBlock;
  kernels.key_block = kKeyBlock;
  kernels.pack = pack<Unit, T>;
  kernels.forward = forward<Unit, T>;
  kernels.cached = cached<Unit, T>;
}

}  // namespace

void add_attention_forward_kernels(KernelTable& table) {
  add_typed<SingleUnit, float>(table.attention[0]);
#ifdef __AVX512BF16__
  add_typed<PairUnit, BrainFloat>(table.attention[1]);
#else
  add_typed<SingleUnit, BrainFloat>(table.attention[1]);
#endif
  add_typed<SingleUnit, HalfFloat>(table.attention[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
