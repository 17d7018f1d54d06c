// What a rank exchanges in a step, by arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/comm/process_grid.h"
#include "megalith/train/recipe.h"

namespace megalith {

/// One kind of message of one group. Gradients and weights of data-parallel ranks, and gradients of norms,
/// travel in pieces; a call here is all pieces together. Payload is counted as CommunicationCounters do: the
/// size of the tensors that the rank hands to operations.
struct MessageLine {
  GridAxis axis = GridAxis::tensor;
  std::string what;
  int64_t calls = 0;
  uint64_t largest = 0;  // bytes of one
  uint64_t bytes = 0;    // of all
};

/// Those of the rank at `place` in a step of the full batch; none for groups of one. A few numbers a step
/// that all ranks agree on (losses, norms) are not counted. Of ZeRO 3's weights it is the most.
std::vector<MessageLine> predict_messages(const Recipe& recipe, const ProcessGrid& grid,
                                          const GridPlace& place);

}  // namespace megalith
