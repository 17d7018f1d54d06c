// The groups that a rank belongs to when parallel forms are combined.
#pragma once

#include <memory>

#include "megalith/comm/communicator.h"
#include "megalith/comm/process_grid.h"

namespace megalith {

struct ParallelGroups {
  /// All ranks of `world`, which must outlive the groups, come here together. Throws InputError when they do
  /// not come out even.
  ParallelGroups(Communicator& world, int pipeline_stages, int tensor_ranks);

  bool first_stage() const { return place.pipeline == 0; }
  bool last_stage() const { return place.pipeline == grid.pipeline() - 1; }

  Communicator& world;
  const ProcessGrid grid;
  const GridPlace place;
  /// Ranks that differ from this one along one axis of the grid only; the rank in each is the place along it.
  const std::unique_ptr<Communicator> pipeline, data, tensor;
};

}  // namespace megalith
