// Hands a dropout to the kernels.
#pragma once

#include "megalith/ops/cpu/table.h"
#include "megalith/ops/dropout.h"

namespace megalith {

inline cpu::MaskSource mask_source(const Dropout& dropout) {
  check(dropout.probability >= 0 && dropout.probability < 1, "dropout: probability {} is not in [0, 1)",
        dropout.probability);
  return {.key = dropout.key,
          .first_position = dropout.first_position,
          .first_element = dropout.first_element,
          .stream = dropout.stream,
          .threshold = dropout.threshold(),
          .scale = dropout.scale(),
          .active = dropout.active()};
}

}  // namespace megalith
