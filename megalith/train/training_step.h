// One optimizer step: micro-batches through the model, gradient norm, clipping, overflow decision, update.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "megalith/train/optimizer.h"
#include "megalith/train/stage.h"
#include "megalith/train/training_state.h"

namespace megalith {

/// What a step gave.
struct StepResult {
  double loss = 0;           // mean over the tokens that count
  double gradient_norm = 0;  // of the mean loss, before clipping
  int64_t loss_tokens = 0;
  bool skipped = false;
  /// What was not finite ("the loss", or a parameter's name), when something was.
  std::string not_finite;
};

/// A rank's part of the model, parameters, optimizer and scratch of a run. The micro-batches of a step are
/// dealt to the data-parallel ranks in contiguous shares; gradients are summed over ranks in their order;
/// loss, gradient norm and the decision to skip are the same on all ranks. With ZeRO each rank updates its
/// part of the weights; the numbers are bit for bit those of stage 0, but for stages 2 and 3 over several
/// micro-batches, which sum each one's gradients over ranks before they add them up.
class TrainingStep {
 public:
  TrainingStep(const Recipe& recipe, TrainingArenas& arenas, const ExecContext& exec, ParallelGroups& groups);

  /// Initial weights from the recipe's seed.
  void initialize();
  /// Makes the weights that products use from the master weights (after loading).
  void refresh_weights();

  /// Reads samples consumed .. consumed + samples - 1 of `source` and updates the weights. Loss and gradients
  /// are those of the whole batch by token count, however it is cut into micro-batches. On a loss or gradient
  /// that is not finite nothing is updated.
  StepResult run(const BatchSource& source, const TrainingState& state, int64_t samples, double learning_rate,
                 double loss_scale);
  /// Mean loss over samples 0 .. samples - 1 of `source`, without dropout.
  double validate(const BatchSource& source, int64_t samples);

  ParameterBuffers& parameters() { return parameters_; }
  Optimizer& optimizer() { return optimizer_; }
  /// How long gradient reductions and weight gathers took, and how long computation had to wait for them;
  /// zero with one data-parallel rank.
  CommunicationQueue::Times communication_times();

 private:
  /// Sums over the ranks that know the losses: {loss, tokens}.
  std::array<double, 2> sum_losses(const Stage::LossSum& own);
  double sum_of_squares();
  void make_data_parallel(TrainingArenas& arenas);
  std::string find_not_finite();
  void gather_weights();
  /// Calls work(parameter, its gradients) for what this rank stands for among all ranks.
  void for_own_gradients(const std::function<void(const Parameter&, TensorView)>& work) const;

  const Recipe& recipe_;
  const ExecContext& exec_;
  ParallelGroups& groups_;
  const int64_t zero_stage_;
  Stage stage_;
  ParameterBuffers parameters_;
  Optimizer optimizer_;
  std::unique_ptr<DataParallel> data_parallel_;
  // Ends first, for its work uses what is above.
  std::optional<CommunicationQueue> queue_;
};

}  // namespace megalith
