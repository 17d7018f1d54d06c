#include "megalith/parallel/pipeline_executor.h"

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "megalith/base/error.h"

namespace megalith {

namespace {

using Kind = PipelineInstruction::Kind;

// Buffers that take turns; one that is still being sent is waited for when its turn comes.
class Buffers {
 public:
  Buffers(Arena& workspace, DType dtype, const Shape& largest, int64_t count) {
    for (int64_t i = 0; i < count; ++i) buffers_.push_back({workspace.allocate(dtype, largest), nullptr});
  }
  TensorView next(const Shape& shape) {
    Buffer& buffer = buffers_[++turn_ % buffers_.size()];
    if (buffer.sent != nullptr) buffer.sent->wait();
    buffer.sent.reset();
    return buffer.view.slice(0, shape[0]);
  }
  /// The last one that next() gave is on its way.
  void sending(std::unique_ptr<PendingSend> sent) {
    buffers_[turn_ % buffers_.size()].sent = std::move(sent);
  }
  void wait() {
    for (Buffer& buffer : buffers_) {
      if (buffer.sent != nullptr) buffer.sent->wait();
      buffer.sent.reset();
    }
  }

 private:
  struct Buffer {
    TensorView view;
    std::unique_ptr<PendingSend> sent;
  };
  std::vector<Buffer> buffers_;
  size_t turn_ = 0;
};

}  // namespace

int64_t pipeline_buffers(const PipelineShape& shape) {
  if (shape.pieces() == 1) return 1;
  // A neighbour receives a message before it begins as many instructions later as there are buffers. Around
  // the stages and back (several chunks) that must not come before this stage's own turn.
  return shape.chunks == 1 ? 2 : shape.stages + 1;
}

void run_pipeline(const ExecContext& exec, const PipelineInstructions& instructions,
                  const PipelineShape& shape, Communicator& stages, PipelineWork& work, bool outputs_stay) {
  if (instructions.empty()) return;
  ArenaScope scope(exec.workspace);
  // The first micro-batch is never smaller than a later one.
  Buffers buffers(exec.workspace, work.stream_dtype(), work.stream_shape(0), pipeline_buffers(shape));
  std::map<std::pair<int, int64_t>, std::unique_ptr<PendingSend>> outputs;  // by chunk and micro-batch
  const auto tag = [&](Kind kind, int piece, int64_t micro_batch) {
    const int64_t number = (micro_batch * shape.pieces() + piece) * 2 + (kind == Kind::forward ? 0 : 1);
    check(number < int64_t{1} << 30, "{} micro-batches are too many for a pipeline of {} pieces", micro_batch,
          shape.pieces());
    return static_cast<int>(number);
  };
  for (const auto& [kind, chunk, micro_batch] : instructions) {
    const int piece = shape.piece(stages.rank(), chunk);
    const bool first = piece == 0, last = piece + 1 == shape.pieces();
    if (kind == Kind::forward) {
      const TensorView x = work.begin_forward(chunk, micro_batch);
      if (!first) {
        const ProfileScope waiting(exec, "pipeline");
        stages.recv(x, shape.stage_of(piece - 1), tag(kind, piece, micro_batch));
      }
      const TensorView y = work.forward(chunk, micro_batch, x);
      if (last) continue;
      const ProfileScope sending(exec, "pipeline");
      const int to = shape.stage_of(piece + 1), message = tag(kind, piece + 1, micro_batch);
      if (outputs_stay) {
        outputs[{chunk, micro_batch}] = stages.send(y, to, message);
      } else {
        const TensorView copy = buffers.next(y.shape());
        std::memcpy(copy.raw(), y.raw(), y.bytes());
        buffers.sending(stages.send(copy, to, message));
      }
    } else {
      const TensorView d = buffers.next(work.stream_shape(micro_batch));
      if (!last) {
        const ProfileScope waiting(exec, "pipeline");
        stages.recv(d, shape.stage_of(piece + 1), tag(kind, piece, micro_batch));
        // It has been received, for its gradient has come back.
        const auto output = outputs.extract({chunk, micro_batch});
        if (!output.empty()) output.mapped()->wait();
      }
      work.backward(chunk, micro_batch, d);
      if (first) continue;
      const ProfileScope sending(exec, "pipeline");
      buffers.sending(stages.send(d, shape.stage_of(piece - 1), tag(kind, piece - 1, micro_batch)));
    }
  }
  const ProfileScope waiting(exec, "pipeline");
  buffers.wait();
}

}  // namespace megalith
