// Runs a stage's list of instructions: passes of the stage between messages from and to its neighbours.
#pragma once

#include "megalith/comm/communicator.h"
#include "megalith/parallel/pipeline_schedule.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// What a stage computes. Streams and their gradients are [N,C] of one type; N may differ from one
/// micro-batch to the next.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;
  /// Where the stream that enters the chunk lies. For the first piece forward() fills it, for the others it
  /// is received.
  virtual TensorView begin_forward(int chunk, int64_t micro_batch) = 0;
  /// Gives the stream that leaves the chunk.
  virtual TensorView forward(int chunk, int64_t micro_batch, TensorView x) = 0;
  /// d, in all pieces but the last, holds the gradient with respect to what forward gave; it receives, in all
  /// pieces but the first, the one with respect to x.
  virtual void backward(int chunk, int64_t micro_batch, TensorView d) = 0;
  virtual Shape stream_shape(int64_t micro_batch) const = 0;
  virtual DType stream_dtype() const = 0;
};

/// `stages` has the ranks of the pipeline in order. With `outputs_stay`, what forward() gave stays as it is
/// until its backward() and is sent from there; otherwise it is copied. Sends never wait for their receiver,
/// so a stage goes on with its next instruction meanwhile. Throws what the passes throw.
void run_pipeline(const ExecContext& exec, const PipelineInstructions& instructions,
                  const PipelineShape& shape, Communicator& stages, PipelineWork& work, bool outputs_stay);

/// Streams that run_pipeline keeps in the workspace: gradients, and copies of outputs, in work or on their
/// way.
int64_t pipeline_buffers(const PipelineShape& shape);

}  // namespace megalith
