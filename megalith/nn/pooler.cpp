#include "megalith/nn/pooler.h"

#include "megalith/ops/elementwise.h"

namespace megalith {

Pooler::Pooler(int64_t hidden, float standard_deviation, const TensorParallel& tensor)
    : dense_("pooler", hidden, hidden, standard_deviation, tensor) {}

void Pooler::forward(const ExecContext& exec, TensorView x, TensorView y) const {
  dense_.forward(exec, x, y);
  soft_cap(exec, y, 1, 1);  // tanh
}

}  // namespace megalith
