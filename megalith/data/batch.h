// A batch of training sequences, as the model sees it.
#pragma once

#include <cstdint>
#include <vector>

namespace megalith {

/// B rows of T positions, row-major. The buffers are reused from step to step: after the first fill of a
/// shape nothing is allocated.
struct Batch {
  int64_t rows = 0;
  int64_t sequence_length = 0;
  /// [B, T] input tokens.
  std::vector<int32_t> tokens;
  /// [B, T] what each position is to predict: the token after it, or the one that a mask hides.
  std::vector<int32_t> targets;
  /// [B, T] 1 where the target counts in the loss, else 0.
  std::vector<float> loss_mask;
  /// [B, T] position of each token: 0..T-1, or counted from the document's start when documents are reset.
  std::vector<int32_t> positions;
  /// [B, T] column of the first token of the same document in this row: a query at t may attend to
  /// document_start[t]..t. All 0 when documents are not reset.
  std::vector<int32_t> document_start;
  /// Targets with loss_mask 1.
  int64_t loss_tokens = 0;

  void resize(int64_t new_rows, int64_t new_sequence_length) {
    rows = new_rows;
    sequence_length = new_sequence_length;
    const size_t size = static_cast<size_t>(rows * sequence_length);
    tokens.resize(size);
    targets.resize(size);
    loss_mask.resize(size);
    positions.resize(size);
    document_start.resize(size);
  }
};

}  // namespace megalith
