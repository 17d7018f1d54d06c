// A training pass of a whole model at once, where the trainer takes its parts as a pipeline's schedule says.
#pragma once

#include "megalith/model/transformer.h"

namespace megalith {

/// losses [N] F32: cross-entropy of each row, unweighted, 0 without a target; parameter gradients of
/// sum(loss_weights * losses) accumulate. `dtype` is the compute type.
inline void loss_and_gradient(Transformer& model, const Pass& pass, DType dtype, TensorView losses) {
  const TensorView y = model.forward(pass, model.begin(pass, dtype));
  ArenaScope scope(pass.exec.workspace);
  const TensorView d = pass.exec.workspace.allocate(y.dtype(), y.shape());
  model.head_backward(pass, y, losses, d);
  model.backward(pass, d);
}

}  // namespace megalith
