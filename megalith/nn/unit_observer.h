// UnitObserver: told when a pass uses the units of a model, so that their parameters can be gathered before
// and their gradients reduced afterwards.
#pragma once

#include <cstdint>

namespace megalith {

/// A unit is the embedding, a block, or the output head; units of a rank are numbered in the order of the
/// walk. The head of a tied model also uses the embedding's token table.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void before_forward(int64_t unit) = 0;
  virtual void before_backward(int64_t unit) = 0;
  virtual void after_backward(int64_t unit) = 0;
};

}  // namespace megalith
