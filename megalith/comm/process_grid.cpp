#include "megalith/comm/process_grid.h"

#include "megalith/base/error.h"

namespace megalith {

ProcessGrid::ProcessGrid(int ranks, int pipeline, int tensor)
    : pipeline_(pipeline), data_(ranks / (pipeline * tensor)), tensor_(tensor) {
  check_input(
      data_ >= 1 && ranks % (pipeline * tensor) == 0,
      "{} ranks cannot be cut into parallel.pipeline = {} times parallel.tensor = {}; start a multiple "
      "of {} (mpirun -n)",
      ranks, pipeline, tensor, pipeline * tensor);
}

GridPlace ProcessGrid::place(int rank) const {
  return {rank / (data_ * tensor_), rank / tensor_ % data_, rank % tensor_};
}

int ProcessGrid::rank(const GridPlace& place) const {
  return (place.pipeline * data_ + place.data) * tensor_ + place.tensor;
}

int ProcessGrid::group_number(GridAxis axis, int of) const {
  const GridPlace at = place(of);
  switch (axis) {
    case GridAxis::pipeline:
      return at.data * tensor_ + at.tensor;
    case GridAxis::data:
      return at.pipeline * tensor_ + at.tensor;
    case GridAxis::tensor:
      break;
  }
  return at.pipeline * data_ + at.data;
}

}  // namespace megalith
