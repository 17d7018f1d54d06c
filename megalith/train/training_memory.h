// The memory of a training run: one arena a kind, and what they are going to hold.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "megalith/comm/process_grid.h"
#include "megalith/parallel/zero_sharding.h"
#include "megalith/tensor/arena.h"
#include "megalith/train/recipe.h"

namespace megalith {

/// Bytes by kind on one rank (docs/architecture.md, memory).
struct MemoryLine {
  std::string kind;
  uint64_t predicted = 0;
  uint64_t measured = 0;
  /// The directory of the file that holds them; empty when they lie in memory.
  std::string directory = {};

  bool in_memory() const { return directory.empty(); }
  /// "weights", or "weights on disk".
  std::string name() const { return in_memory() ? kind : kind + " on disk"; }
};

class TrainingArenas {
 public:
  Arena weights{"weights"};
  Arena gradients{"gradients"};
  Arena optimizer{"optimizer states"};
  /// Where ZeRO 2 and 3 have units whole.
  Arena buckets{"buckets"};
  /// What recompute drops again.
  Arena recomputed{"activations"};
  Arena workspace{"workspace"};

  /// One arena for each micro-batch that is alive; made when first asked for.
  Arena& activations(size_t micro_batch) {
    while (alive_.size() <= micro_batch) alive_.emplace_back("activations").expect(expected_activations_);
    return alive_[micro_batch];
  }
  /// Makes room as predicted: files for what lies on disk (InputError when a disk does not hold it), and
  /// address space where that is limited. Before anything is allocated.
  void prepare(const std::vector<MemoryLine>& predicted);
  /// High-water mark of all arenas of this kind.
  uint64_t high_water(const std::string& kind) const;

 private:
  std::deque<Arena> alive_;
  size_t expected_activations_ = 0;
};

ZeroSharding::Options zero_sharding_options(const Recipe& recipe);

/// Predictions for the rank at `place`, without measurements.
std::vector<MemoryLine> predict_memory(const Recipe& recipe, const ProcessGrid& grid, const GridPlace& place);

/// The same lines with the high-water marks of the arenas.
std::vector<MemoryLine> measure_memory(std::vector<MemoryLine> predicted, const TrainingArenas& arenas);

}  // namespace megalith
