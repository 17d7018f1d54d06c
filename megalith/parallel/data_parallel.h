// DataParallel: what data-parallel ranks exchange in a step. ZeRO's stages differ in who holds what
// (Rajbhandari et al. 2020): every rank owns an equal part of the flat index space; stage 1 keeps only the
// owner's optimizer states, stage 2 only its gradients as well, stage 3 only its weights too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "megalith/comm/communicator.h"
#include "megalith/nn/parameter.h"
#include "megalith/nn/tensor_parallel.h"
#include "megalith/nn/unit_observer.h"
#include "megalith/parallel/communication_queue.h"

namespace megalith {

/// The parameters of a unit: slots [first_slot, end_slot) and the elements that they take up.
struct UnitRange {
  size_t first_slot = 0, end_slot = 0;
  PartRange elements;
};

/// In a step: begin_step; for each micro-batch begin_micro_batch, then passes that tell of their units, or
/// idle_micro_batch where another rank has one more; finish. Ranks call the same in the same order.
class DataParallel : public UnitObserver {
 public:
  virtual void begin_step() = 0;
  virtual void begin_micro_batch(bool last) = 0;
  /// Takes part in what the others do for a micro-batch, without one of its own.
  virtual void idle_micro_batch() = 0;
  /// The same for an evaluation.
  virtual void idle_evaluation() = 0;
  /// Returns when the gradients of the step are complete: on every rank in stage 0, else each part on its
  /// owner.
  virtual void finish() = 0;
  /// The owner's weights have changed.
  virtual void weights_changed() = 0;
};

/// Stages 0 and 1: gradients are summed once a step, in buckets, from the last unit to the first, while the
/// backward pass of the last micro-batch goes on.
class GradientReduction : public DataParallel {
 public:
  struct Options {
    /// Parts go to their owners only (stage 1).
    bool to_owners = false;
    int64_t bucket_elements = 0;
    /// Units whose gradients are complete only at finish().
    std::vector<bool> deferred;
  };
  /// `queue` is null with one data-parallel rank, when only partial sums of tensor-parallel ranks are
  /// completed.
  GradientReduction(const ExecContext& exec, const TensorParallel& tensor, ParameterBuffers& parameters,
                    const std::vector<UnitRange>& units, Options options, CommunicationQueue* queue);

  void begin_step() override;
  void begin_micro_batch(bool last) override { last_ = last; }
  void idle_micro_batch() override {}
  void idle_evaluation() override {}
  void before_forward(int64_t) override {}
  void before_backward(int64_t) override {}
  void after_backward(int64_t unit) override;
  void finish() override;
  void weights_changed() override {}

 private:
  // Neighbouring units; reduced when the one with the smallest number is complete.
  struct Bucket {
    PartRange elements;
    size_t first_slot = 0, end_slot = 0;
    int64_t after_unit = 0;
    bool deferred = false;
  };
  void submit_until(int64_t unit, bool deferred_too);

  const ExecContext& exec_;
  TensorParallel tensor_;
  ParameterBuffers& parameters_;
  Options options_;
  CommunicationQueue* queue_;
  std::vector<Bucket> buckets_;  // in the order of reduction
  size_t next_ = 0;
  bool last_ = false;
};

/// Sums `data`, elements [first, first + n) of the flat index space, over the ranks of `group`; each part on
/// its owner only.
void reduce_to_owners(Communicator& group, const ParameterBuffers& parameters, int64_t first,
                      TensorView data);

}  // namespace megalith
