// The memory of a training run: one arena a kind, and what they are going to hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/model/transformer.h"
#include "megalith/train/recipe.h"

namespace megalith {

struct TrainingArenas {
  Arena weights{"weights"};
  Arena gradients{"gradients"};
  Arena optimizer{"optimizer states"};
  Arena activations{"activations"};
  Arena workspace{"workspace"};
};

/// Bytes by kind. With P parameters (padded) of the compute type's size e, and N rows of a micro-batch:
/// weights e P, gradients 4 P, optimizer states 4 to 12 P (Optimizer::bytes_per_element), activations
/// Transformer::activation_bytes(N).
struct MemoryLine {
  std::string kind;
  uint64_t predicted = 0;
  uint64_t measured = 0;
};

/// Predictions for one of `ranks` data-parallel ranks, without measurements. ZeRO 1 divides the optimizer
/// states by their number.
std::vector<MemoryLine> predict_memory(Transformer& model, const Recipe& recipe, int ranks);

/// The same lines with the high-water marks of the arenas.
std::vector<MemoryLine> measure_memory(std::vector<MemoryLine> predicted, const TrainingArenas& arenas);

}  // namespace megalith
