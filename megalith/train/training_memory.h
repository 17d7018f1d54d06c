// The memory of a training run: one arena a kind, and what they are going to hold.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megalith/comm/process_grid.h"
#include "megalith/parallel/zero_sharding.h"
#include "megalith/tensor/arena.h"
#include "megalith/train/recipe.h"

namespace megalith {

/// The kind of optimizer states that optimizer.offload_directory keeps out of memory.
inline constexpr const char* kStatesOnDisk = "states on disk";

class TrainingArenas {
 public:
  Arena weights{"weights"};
  Arena gradients{"gradients"};
  /// Where ZeRO 2 and 3 have units whole.
  Arena buckets{"buckets"};
  /// What recompute drops again.
  Arena recomputed{"activations"};
  Arena workspace{"workspace"};

  /// One arena for each micro-batch that is alive; made when first asked for.
  Arena& activations(size_t micro_batch) {
    while (alive_.size() <= micro_batch) alive_.emplace_back("activations");
    return alive_[micro_batch];
  }
  Arena& optimizer() { return optimizer_in_file_ ? *optimizer_in_file_ : optimizer_; }
  /// From now on optimizer states lie in a file of `directory` with room for `bytes`.
  void offload_optimizer(const std::filesystem::path& directory, uint64_t bytes) {
    optimizer_in_file_.emplace(kStatesOnDisk, directory, bytes);
  }
  /// High-water mark of all arenas of this kind.
  uint64_t high_water(const std::string& kind) const;

 private:
  Arena optimizer_{"optimizer states"};
  std::optional<Arena> optimizer_in_file_;
  std::deque<Arena> alive_;
};

/// Bytes by kind on one rank (docs/architecture.md, memory).
struct MemoryLine {
  std::string kind;
  uint64_t predicted = 0;
  uint64_t measured = 0;
};

ZeroSharding::Options zero_sharding_options(const Recipe& recipe);

/// Predictions for the rank at `place`, without measurements.
std::vector<MemoryLine> predict_memory(const Recipe& recipe, const ProcessGrid& grid, const GridPlace& place);

/// The same lines with the high-water marks of the arenas.
std::vector<MemoryLine> measure_memory(std::vector<MemoryLine> predicted, const TrainingArenas& arenas);

}  // namespace megalith
