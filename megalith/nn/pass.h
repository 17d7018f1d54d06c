// What a pass through the model carries besides activations.
#pragma once

#include <cstdint>

#include "megalith/base/random.h"
#include "megalith/nn/saved.h"
#include "megalith/nn/unit_observer.h"
#include "megalith/ops/dropout.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// What the forward pass drops and the backward pass computes again.
enum class Recompute {
  none,       // everything is kept
  attention,  // a block keeps its input, not the inside of its attention part
  full,       // a block keeps its input only
};

/// The tokens of one micro-batch: B sequences of T tokens; N = B*T rows.
struct TokenBatch {
  int64_t batch = 0;
  int64_t tokens = 0;
  TensorView token_ids;        // [N] I32
  TensorView positions;        // [N] I32
  TensorView token_types;      // [N] I32, or empty: all of type 0. For models that have types
  TensorView document_starts;  // [B,T] I32, or empty: attention is not cut at documents
  TensorView targets;          // [N] I32, negative where there is none
  TensorView loss_weights;     // [N] F32: gradient of the total loss with respect to each token's loss
  /// Global position (sample in the run's order x T) of row 0; keys the dropout masks.
  uint64_t first_position = 0;

  int64_t rows() const { return batch * tokens; }
};

struct Pass {
  const ExecContext& exec;
  const TokenBatch& batch;
  Saved& saved;
  Recompute recompute = Recompute::none;
  /// Dropout is on.
  bool training = false;
  uint64_t seed = 0;
  /// May be null. `first_unit` is the number of the first unit of the model that the pass goes through.
  UnitObserver* units = nullptr;
  int64_t first_unit = 0;

  /// The dropout of one layer. `which` tells the uses inside a layer apart.
  Dropout dropout(double probability, RandomUse use, int64_t layer, uint32_t which = 0) const {
    Dropout dropout;
    if (!training || probability <= 0) return dropout;
    dropout.probability = static_cast<float>(probability);
    dropout.key = RandomStream(seed, use, 0).key();
    dropout.stream = static_cast<uint32_t>(layer) * 4u + which;
    dropout.first_position = batch.first_position;
    return dropout;
  }
};

}  // namespace megalith
