// A vector for a whole sequence from the hidden state of its first token (Devlin et al., "BERT").
#pragma once

#include "megalith/nn/linear.h"

namespace megalith {

class Pooler {
 public:
  Pooler(int64_t hidden, float standard_deviation, const TensorParallel& tensor);

  /// y = tanh(W x + b); x, y [B,C], x the hidden states of the first tokens of B sequences.
  void forward(const ExecContext& exec, TensorView x, TensorView y) const;
  void visit(const ParameterVisitor& visitor) { dense_.visit(visitor); }

 private:
  ReplicatedLinear dense_;
};

}  // namespace megalith
