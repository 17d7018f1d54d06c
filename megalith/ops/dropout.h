// Dropout as a pure function of where an element is, not of who computes it when.
#pragma once

#include <cstdint>

#include "megalith/base/random.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// One dropout layer at one training step. The mask of an element is a Philox word keyed by (seed, use), with
/// the counter (element / 4, global position, stream), so that recompute, resume and any parallel layout draw
/// the same mask.
struct Dropout {
  float probability = 0;
  uint64_t key = 0;             // RandomStream::key() of (seed, use)
  uint32_t stream = 0;          // mixes step and layer
  uint64_t first_position = 0;  // global position (sample in the run's order x sequence length) of row 0
  uint64_t first_element = 0;   // number of element 0 of a row, when a rank holds a part of the elements

  bool active() const { return probability > 0; }
  float scale() const { return 1.0f / (1.0f - probability); }
  /// An element is dropped when its word is below this.
  uint32_t threshold() const {
    return static_cast<uint32_t>(static_cast<double>(probability) * 4294967296.0);
  }
  /// Four words for elements 4*block .. 4*block+3 at row `row`.
  std::array<uint32_t, 4> words(uint64_t row, uint32_t block) const {
    const uint64_t position = first_position + row;
    return philox({block, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream},
                  {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  }
  bool keeps(uint64_t row, uint64_t element) const {
    const uint64_t at = first_element + element;
    return words(row, static_cast<uint32_t>(at / 4))[at % 4] >= threshold();
  }
};

/// y[N,C] = x + dropout(delta); y may be x. Without dropout a plain addition.
void residual_add(const ExecContext& context, TensorView x, TensorView delta, const Dropout& dropout,
                  TensorView y);

/// dx[N,C] = dy masked and scaled; dx may be dy. Without dropout a copy (nothing when in place).
void dropout_backward(const ExecContext& context, TensorView dy, const Dropout& dropout, TensorView dx);

}  // namespace megalith
