// Softmax cross-entropy over the vocabulary. N rows, V vocabulary columns, of which the first `vocabulary`
// count (the rest pads the table to a round size and has probability zero).
#pragma once

#include "megalith/tensor/exec.h"

namespace megalith {

/// losses[N] (F32) = log(sum exp logits) - logits[target], in fp32; 0 where the target is negative.
void cross_entropy_forward(const ExecContext& context, TensorView logits, TensorView targets,
                           int64_t vocabulary, TensorView losses);

/// The same, and replaces logits by their gradient: (softmax - onehot(target)) * weights[n]; weights [N] F32.
void cross_entropy_backward(const ExecContext& context, TensorView logits, TensorView targets,
                            TensorView weights, int64_t vocabulary, TensorView losses);

}  // namespace megalith
