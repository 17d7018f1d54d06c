// Stage: the part of the model that one rank holds, and the passes of micro-batches through it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megalith/comm/parallel_groups.h"
#include "megalith/data/batch_source.h"
#include "megalith/model/transformer.h"
#include "megalith/parallel/data_parallel.h"
#include "megalith/parallel/pipeline_executor.h"
#include "megalith/train/stage_layout.h"
#include "megalith/train/training_memory.h"

namespace megalith {

class Stage : public PipelineWork {
 public:
  Stage(const Recipe& recipe, TrainingArenas& arenas, const ExecContext& exec, ParallelGroups& groups);

  /// Parameters of all chunks in order.
  void walk(const ParameterVisitor& visitor);
  /// The same by units, which are numbered through all chunks.
  std::vector<UnitRange> units(const ParameterBuffers& parameters) const;
  /// Units whose gradients are complete only after finish_gradients().
  std::vector<bool> deferred_units() const;
  /// From now on passes tell `data_parallel`, which must outlive them, of the units that they use.
  void observe(DataParallel& data_parallel) { data_parallel_ = &data_parallel; }

  struct LossSum {
    double loss = 0;
    int64_t tokens = 0;
  };
  /// Forward and backward passes of this rank's micro-batches of a step of `samples` samples from
  /// `first_sample` on. Gradients of loss_weight times the sum of losses accumulate. The losses are known on
  /// the last stage; elsewhere the sum is 0.
  LossSum train(const BatchSource& source, uint64_t first_sample, int64_t samples, double loss_weight);
  /// Forward passes alone, without dropout.
  LossSum evaluate(const BatchSource& source, int64_t samples);

  /// Completes the gradients of a step over the pipeline: those of a tied token table are the sum of the
  /// look-up's and the output layer's, and both stages that hold the table get it.
  void finish_gradients(ParameterBuffers& parameters);

  TensorView begin_forward(int chunk, int64_t micro_batch) override;
  TensorView forward(int chunk, int64_t micro_batch, TensorView x) override;
  void backward(int chunk, int64_t micro_batch, TensorView d) override;
  Shape stream_shape(int64_t micro_batch) const override;
  DType stream_dtype() const override { return compute_type(recipe_.train.precision); }

 private:
  // A micro-batch between its forward and its backward pass.
  struct Slot {
    Slot(Arena& kept, Arena& transient) : saved(kept, transient) {}
    Saved saved;
    Batch batch;
    std::vector<float> loss_weights;
    TokenBatch tokens;
    TensorView output;
  };
  // The step or evaluation in progress.
  struct Work {
    const BatchSource* source = nullptr;
    uint64_t first_sample = 0;
    int64_t samples = 0;
    PartRange own;  // micro-batches
    double loss_weight = 1;
    bool training = false;
    LossSum sum;
  };

  Slot& slot(int chunk, int64_t micro_batch);
  int64_t rows_of(int64_t micro_batch) const;
  void load(Slot& slot, int64_t micro_batch);
  Pass pass(int chunk, Slot& slot) const;
  Trace* trace() const { return exec_.profiler != nullptr ? exec_.profiler->trace() : nullptr; }
  /// Micro-batches of the data-parallel rank that has most, less its own.
  int64_t idle_micro_batches() const;
  void add_losses(const Slot& slot, TensorView losses);
  void exchange_tied_gradient();

  const Recipe& recipe_;
  const ExecContext& exec_;
  ParallelGroups& groups_;
  PipelineShape shape_;
  std::vector<std::unique_ptr<Transformer>> pieces_;       // by chunk
  std::vector<std::vector<std::unique_ptr<Slot>>> slots_;  // by chunk
  Slot evaluation_;
  TensorView streams_[2];  // of the evaluation in progress
  TensorView lookup_gradient_;
  std::vector<int64_t> first_unit_;  // by chunk
  DataParallel* data_parallel_ = nullptr;
  Work work_;
};

}  // namespace megalith
