#include "megalith/comm/parallel_groups.h"

namespace megalith {

namespace {

std::unique_ptr<Communicator> cut(Communicator& world, const ProcessGrid& grid, GridAxis axis,
                                  const char* name) {
  // Ranks of a group ascend along its axis, so ties in the key leave the right order.
  return world.split(grid.group_number(axis, world.rank()), 0, name);
}

}  // namespace

ParallelGroups::ParallelGroups(Communicator& its_world, int pipeline_stages, int tensor_ranks)
    : world(its_world),
      grid(world.size(), pipeline_stages, tensor_ranks),
      place(grid.place(world.rank())),
      pipeline(cut(world, grid, GridAxis::pipeline, "pipeline")),
      data(cut(world, grid, GridAxis::data, "data parallel")),
      tensor(cut(world, grid, GridAxis::tensor, "tensor parallel")) {}

}  // namespace megalith
