// ZeroSharding: ZeRO stages 2 and 3 over units of the model.
//
// A unit's gradients lie whole in a buffer only from the begin of its backward pass until they have been
// reduced to their owners; with stage 3 its weights lie whole in a buffer only around its passes, gathered
// while the unit before is computed. Blocks take turns in two buffers of each kind. The tables of an untied
// model, the embedding and the head, take turns in one; those of a tied model have one together, since the
// head's gradient must wait for the embedding's. Units below the persistence threshold keep their gathered
// weights until an update.
//
// A rank's parts may lie in a file (Rajbhandari et al. 2021, ZeRO-Infinity): then a part of the weights is
// read ahead while the unit before it is gathered, and what has been copied out or added up leaves memory
// again.
#pragma once

#include "megalith/nn/tensor_parallel.h"
#include "megalith/parallel/data_parallel.h"

namespace megalith {

class ZeroSharding : public DataParallel {
 public:
  struct Options {
    /// 2 or 3.
    int stage = 2;
    bool tied = false;
    int64_t persistent_elements = 0;
    /// The embedding's backward pass needs its weights: a norm's. Looking up needs none.
    bool embedding_norm = false;
  };
  /// Cuts the buffers from `arena`. The first unit is the embedding, the last one the head.
  ZeroSharding(const ExecContext& exec, ParameterBuffers& parameters, std::vector<UnitRange> units,
               const TensorParallel& tensor, const Options& options, Arena& arena, CommunicationQueue& queue);

  void begin_step() override { next_is_first_ = true; }
  void begin_micro_batch(bool) override;
  void idle_micro_batch() override;
  void idle_evaluation() override;
  void before_forward(int64_t unit) override;
  void before_backward(int64_t unit) override;
  void after_backward(int64_t unit) override;
  void finish() override;
  void weights_changed() override;

  /// Bytes of the buffers.
  static uint64_t buffer_bytes(const std::vector<UnitRange>& units, const Options& options, size_t element);

 private:
  // Memory that units take turns in; `unit` is whose parameters it holds or is going to hold, -1 for none.
  struct Buffer {
    TensorView data;
    int64_t unit = -1;
    CommunicationQueue::Ticket ticket = 0;
  };
  // Sizes of buffers in elements, and for each unit the buffers that it may use.
  struct Plan {
    std::vector<int64_t> sizes;
    std::vector<std::vector<size_t>> of_unit;
  };
  static Plan plan(const std::vector<UnitRange>& units, const Options& options, bool values);

  int64_t head() const { return static_cast<int64_t>(units_.size()) - 1; }
  bool is_block(int64_t unit) const { return unit > 0 && unit < head(); }
  /// The buffer of `unit`, with its weights or on their way; it is not one that `in_use` occupies. `then` is
  /// the unit whose weights come next: where they lie in a file, they are read ahead.
  Buffer& gather(int64_t unit, int64_t in_use, int64_t then);
  /// Weights of `unit` are there, those of `next` on their way.
  void acquire(int64_t unit, int64_t next);
  void open_gradients(int64_t unit);

  const ExecContext& exec_;
  ParameterBuffers& parameters_;
  const std::vector<UnitRange> units_;
  TensorParallel tensor_;
  const Options options_;
  CommunicationQueue& queue_;
  Plan value_plan_, gradient_plan_;
  std::vector<Buffer> values_, gradients_;
  bool first_micro_batch_ = true, next_is_first_ = true;
};

}  // namespace megalith
