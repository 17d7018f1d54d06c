// Operands of the small matrix products inside attention, in blocks of 64 keys: how rows of queries,
// probabilities and their gradients are laid out for the inner kernel of a matrix product, by the unit that
// it multiplies.
#pragma once

#include "megalith/ops/cpu/gemm_multiply.h"
#include "megalith/ops/cpu/gemm_tiles.h"
#include "megalith/ops/cpu/math.h"
#include "megalith/ops/cpu/philox.h"

namespace megalith::cpu::MEGALITH_LEVEL {

inline constexpr int64_t kKeyBlock = kPanel;
inline constexpr int64_t kRowVectors = kKeyBlock / kLanes;

/// One row over a block of keys, in registers.
struct KeyRow {
  Vector part[kRowVectors];
};

/// Pairs of bf16 multiplied by tiles.
template <class Tiles>
struct TileUnit : PairUnit {
  using Implementation = Tiles;
};
template <class Unit>
inline constexpr bool kUsesTiles = false;
template <class Tiles>
inline constexpr bool kUsesTiles<TileUnit<Tiles>> = true;

/// Cuts aligned pieces from the caller's scratch; with a null base it only counts.
struct Scratch {
  char* base;
  int64_t used = 0;
  template <class T>
  MEGALITH_INLINE T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(base + used);
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return piece;
  }
};

MEGALITH_INLINE int64_t padded_size(int64_t head_size) {
  return round_up(head_size, kPanel);
}
/// Units that n summed elements take in an operand; tiles take them by sixteen.
template <class Unit>
MEGALITH_INLINE int64_t operand_units(int64_t n) {
  return round_up(units_of<Unit>(n), kUsesTiles<Unit> ? kTile : 1);
}
/// Words of an operand of rows.
template <class Unit>
MEGALITH_INLINE int64_t row_words(int64_t rows, int64_t units) {
  return round_up(rows, kUsesTiles<Unit> ? kStepRows : 1) * units;
}
/// Words of a block of keys packed by columns, and of a block of keys or values packed by rows.
template <class Unit>
MEGALITH_INLINE int64_t column_block_words(int64_t head_size) {
  return operand_units<Unit>(head_size) * kKeyBlock;
}
template <class Unit>
MEGALITH_INLINE int64_t row_block_words(int64_t head_size) {
  return padded_size(head_size) * operand_units<Unit>(kKeyBlock);
}

/// Packs rows x[r][0 .. head_size) as an operand of rows.
template <class Unit, class T>
MEGALITH_INLINE void load_rows(const T* x, int64_t stride, int64_t first, int64_t rows, int64_t head_size,
                               uint32_t* words) {
  const int64_t units = operand_units<Unit>(head_size);
  if constexpr (kUsesTiles<Unit>) {
    pack_a_tiles_rows(x, stride, head_size, rows, units, words, first);
  } else {
    const int64_t whole = head_size / Unit::kElements;
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = x + r * stride;
      uint32_t* to = words + (first + r) * units;
#pragma omp simd
      for (int64_t u = 0; u < whole; ++u) to[u] = Unit::gather(row + u * Unit::kElements, 1, Unit::kElements);
      if (whole < units) to[whole] = Unit::gather(row + whole * Unit::kElements, 1, 1);
    }
  }
}

#ifdef __AVX512BF16__
/// Two registers rounded to bf16, one behind the other.
MEGALITH_INLINE WordVector round_two(Vector first, Vector second) {
  return bit_cast<WordVector>(_mm512_cvtne2ps_pbh(bit_cast<__m512>(second), bit_cast<__m512>(first)));
}
#else
MEGALITH_INLINE WordVector round_upper(Vector x) {
  const WordVector word = bit_cast<WordVector>(x);
  return word + 0x7fffu + ((word >> 16) & 1u);
}
#endif

/// Row `r` of an operand whose summed dimension is the block of keys.
template <class Unit>
MEGALITH_INLINE void put_row(const KeyRow& row, int64_t r, uint32_t* words) {
  if constexpr (Unit::kElements == 1) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kRowVectors; ++v) {
      store_vector(reinterpret_cast<float*>(words) + r * kKeyBlock + v * kLanes, row.part[v]);
    }
  } else {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kRowVectors; v += 2) {
#ifdef __AVX512BF16__
      const WordVector pairs = round_two(row.part[v], row.part[v + 1]);
#else
      // Even elements in the lower halves, odd ones in the upper: units in order after a de-interleave.
      const WordVector a = round_upper(row.part[v]), b = round_upper(row.part[v + 1]);
      const WordVector pairs = (even_lanes(a, b) >> 16) | (odd_lanes(a, b) & 0xffff0000u);
#endif
      const int64_t unit = v * kLanes / 2;
      const int64_t at = kUsesTiles<Unit>
                             ? r / kStepRows * kStepRows * (kKeyBlock / 2) + unit / kTile * kStepWords +
                                   r % kStepRows * kTile + unit % kTile
                             : r * (kKeyBlock / 2) + unit;
      *reinterpret_cast<LooseWordVector*>(words + at) = pairs;
    }
  }
}

/// Two neighbouring rows, 2 `pair` and the next, of an operand that is summed over rows: its units lie as
/// [rows / elements][64]. Rows that are one number a unit are put by put_row alone.
template <class Unit>
MEGALITH_INLINE void put_across(const KeyRow& even, const KeyRow& odd, int64_t pair, uint32_t* words) {
  if constexpr (Unit::kElements > 1) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kRowVectors; ++v) {
#ifdef __AVX512BF16__
      typedef uint16_t Halves __attribute__((vector_size(64)));
      const Halves halves = bit_cast<Halves>(round_two(even.part[v], odd.part[v]));
      const Halves order = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
      const WordVector units = bit_cast<WordVector>(__builtin_shuffle(halves, order));
#else
      const WordVector units = (round_upper(even.part[v]) >> 16) | (round_upper(odd.part[v]) & 0xffff0000u);
#endif
      *reinterpret_cast<LooseWordVector*>(words + pair * kKeyBlock + v * kLanes) = units;
    }
  }
}

/// c = or += A B for an operand of rows.
template <class Unit>
MEGALITH_INLINE void multiply_rows_by(int64_t rows, int64_t columns, int64_t units, const uint32_t* a,
                                      int64_t a_units, const uint32_t* b, float* c, int64_t ldc,
                                      StoreMode mode) {
  if constexpr (kUsesTiles<Unit>) {
    for (int64_t r = 0; r < rows; r += kStepRows) {
      multiply_tiles<typename Unit::Implementation>(smaller(kStepRows, rows - r), columns, units,
                                                    a + r * a_units, 0, 0, b, c + r * ldc, ldc, mode);
    }
  } else {
    multiply<Unit>(rows, columns, units, a, a_units * 4, 4, b, c, ldc, mode);
  }
}

/// Turns units [u][64] into an operand of 64 rows (keys) for tiles.
MEGALITH_INLINE void turn_across(int64_t units, const uint32_t* across, uint32_t* rows) {
  for (int64_t u = 0; u < units; u += kLanes) {
    for (int64_t key = 0; key < kKeyBlock; key += kLanes) {
      WordVector square[kLanes];
#pragma GCC unroll 16
      for (int64_t s = 0; s < kLanes; ++s) {
        square[s] = *reinterpret_cast<const LooseWordVector*>(across + (u + s) * kKeyBlock + key);
      }
      transpose_square(square);
      uint32_t* to = rows + key / kStepRows * kStepRows * units + u / kTile * kStepWords +
                     key % kStepRows * kTile + u % kTile;
#pragma GCC unroll 16
      for (int64_t s = 0; s < kLanes; ++s) *reinterpret_cast<LooseWordVector*>(to + s * kTile) = square[s];
    }
  }
}

/// The keys that a query may see, as offsets into a key block that starts at `block_begin`.
struct Visible {
  int64_t low, high;
  MEGALITH_INLINE bool none() const { return high <= low; }
  MEGALITH_INLINE bool all() const { return low <= 0 && high >= kKeyBlock; }
};
MEGALITH_INLINE Visible visible_keys(KeyRange range, int64_t block_begin) {
  return {larger<int64_t>(range.begin - block_begin, 0),
          smaller<int64_t>(range.end - block_begin, kKeyBlock)};
}
/// What queries begin .. end - 1 see: `some` from the first to the last key that one of them does, `all` the
/// keys that every one does.
struct BlockRange {
  KeyRange some, all;

  BlockRange(const KeyRange* visible, int64_t begin, int64_t end) : some(visible[begin]), all(some) {
    for (int64_t t = begin + 1; t < end; ++t) {
      some = {smaller(some.begin, visible[t].begin), larger(some.end, visible[t].end)};
      all = {larger(all.begin, visible[t].begin), smaller(all.end, visible[t].end)};
    }
  }
  /// Whether no mask cuts through the block of keys at `at`.
  bool whole(int64_t at) const { return all.begin <= at && at + kKeyBlock <= all.end; }
};

/// Rows that the inner kernel computes at once: where a mask cuts through a block, products leave out what no
/// row of such a group sees.
template <class Unit>
inline constexpr int64_t kGroupRows = kUsesTiles<Unit> ? kStepRows : kPanelA;

/// The keys from the first to the last that one of `rows` rows sees; seen(r) tells those of row r.
template <class Seen>
MEGALITH_INLINE Visible seen_by_some(int64_t first, int64_t rows, const Seen& seen) {
  Visible some{kKeyBlock, 0};
  for (int64_t r = first; r < first + rows; ++r) {
    const Visible row = seen(r);
    if (row.none()) continue;
    some.low = smaller(some.low, row.low);
    some.high = larger(some.high, row.high);
  }
  return some;
}
/// Where products over a group's keys begin: at a whole vector of columns, or at a unit of the sum. Tiles
/// take them from the start of the block.
template <class Unit>
MEGALITH_INLINE int64_t first_column(Visible seen) {
  return kUsesTiles<Unit> ? 0 : seen.low / kLanes * kLanes;
}
template <class Unit>
MEGALITH_INLINE int64_t first_unit(Visible seen) {
  return kUsesTiles<Unit> ? 0 : seen.low / Unit::kElements;
}

/// All ones in the lanes of part v that are visible.
MEGALITH_INLINE LaneIndex visible_lanes(Visible visible, int64_t v) {
  const LaneIndex lane = bit_cast<LaneIndex>(lane_numbers()) + static_cast<int32_t>(v * kLanes);
  return (lane >= static_cast<int32_t>(visible.low)) & (lane < static_cast<int32_t>(visible.high));
}

/// e^(scale x - shift), as exact as probabilities that are held in units of that kind.
template <class Unit>
MEGALITH_INLINE Vector shifted_exponential(Vector x, float scale, float shift) {
  if constexpr (Unit::kElements > 1) {
    constexpr float kLog2e = 1.44269504088896341f;
    return rough_power_of_two(x * (scale * kLog2e) - shift * kLog2e);
  } else {
    return exponential(x * scale - shift);
  }
}

/// Makes logits of one row's products over a block of keys: cap * tanh(scale * product / cap), or ALiBi's
/// scale * product + slope * (key - query). `distance` is that of the block's first key. Lanes that are not
/// visible may hold anything before and after.
inline void shape_logits(const AttentionGeometry& g, int64_t head, int64_t distance, float* row) {
  const float slope = g.slopes == nullptr ? 0.0f : g.slopes[head];
  const float inner = g.softcap > 0 ? g.scale / g.softcap : 0.0f;
  for (int64_t v = 0; v < kRowVectors; ++v) {
    Vector x = load_vector(row + v * kLanes);
    if (g.softcap > 0) {
      x = g.softcap * hyperbolic_tangent(x * inner);
    } else {
      const Vector lane = __builtin_convertvector(bit_cast<LaneIndex>(lane_numbers()), Vector);
      x = x * g.scale + slope * (lane + static_cast<float>(distance + v * kLanes));
    }
    store_vector(row + v * kLanes, x);
  }
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
