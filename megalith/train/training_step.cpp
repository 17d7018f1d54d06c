#include "megalith/train/training_step.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "megalith/ops/elementwise.h"
#include "megalith/ops/exact_sum.h"
#include "megalith/parallel/zero_sharding.h"

namespace megalith {

TrainingStep::TrainingStep(const Recipe& recipe, TrainingArenas& arenas, const ExecContext& exec,
                           ParallelGroups& groups)
    : recipe_(recipe),
      exec_(exec),
      groups_(groups),
      zero_stage_(effective_zero_stage(recipe, groups.grid)),
      stage_(recipe, arenas, exec, groups),
      parameters_([this](const ParameterVisitor& visitor) { stage_.walk(visitor); },
                  compute_type(recipe.train.precision), arenas.weights, &arenas.gradients,
                  FlatParts{groups.grid.data(), groups.place.data, zero_stage_ < 3, zero_stage_ < 2}),
      optimizer_(recipe.optimizer, parameters_, arenas.optimizer,
                 zero_stage_ > 0 ? parameters_.own_part() : PartRange{0, parameters_.elements()}) {
  make_data_parallel(arenas);
  stage_.observe(*data_parallel_);
}

void TrainingStep::make_data_parallel(TrainingArenas& arenas) {
  if (groups_.data->size() > 1 || zero_stage_ == 3)
    queue_.emplace(*groups_.data, exec_.profiler != nullptr ? exec_.profiler->trace() : nullptr);
  const TensorParallel tensor(*groups_.tensor, recipe_.parallel.sequence_parallel);
  if (zero_stage_ < 2) {
    GradientReduction::Options options;
    options.to_owners = zero_stage_ == 1;
    options.bucket_elements = recipe_.parallel.bucket_elements;
    options.deferred = stage_.deferred_units();
    data_parallel_ =
        std::make_unique<GradientReduction>(exec_, tensor, parameters_, stage_.units(parameters_),
                                            std::move(options), queue_ ? &*queue_ : nullptr);
  } else {
    data_parallel_ = std::make_unique<ZeroSharding>(exec_, parameters_, stage_.units(parameters_), tensor,
                                                    zero_sharding_options(recipe_), arenas.buckets, *queue_);
  }
}

CommunicationQueue::Times TrainingStep::communication_times() {
  return queue_ ? queue_->times() : CommunicationQueue::Times();
}

void TrainingStep::initialize() {
  {
    const UntimedWork untimed(groups_.world);
    initialize_parameters(exec_, parameters_.slots(), static_cast<uint64_t>(recipe_.train.seed),
                          optimizer_.range(), optimizer_.master());
  }
  refresh_weights();
}

void TrainingStep::refresh_weights() {
  optimizer_.refresh_values(exec_);
  gather_weights();
}

void TrainingStep::gather_weights() {
  data_parallel_->weights_changed();
  if (zero_stage_ == 0 || zero_stage_ == 3) return;
  const ProfileScope scope(exec_, "communication");
  groups_.data->all_gather(parameters_.values());
}

void TrainingStep::for_own_gradients(const std::function<void(const Parameter&, TensorView)>& work) const {
  constexpr int64_t kPiece = int64_t{1} << 22;
  const PartRange own = parameters_.own_part();
  for (const ParameterSlot& slot : parameters_.slots()) {
    const Parameter& parameter = *slot.parameter;
    const PartRange part = intersection({slot.offset, slot.offset + slot.elements}, own);
    if (parameter.is_copy) continue;
    // In pieces that are small beside the memory, where gradients lie in a file.
    for (int64_t begin = part.begin; begin < part.end; begin += kPiece) {
      const PartRange piece{begin, std::min(begin + kPiece, part.end)};
      parameters_.prefetch_gradients({piece.end, piece.end + kPiece});
      work(parameter, parameters_.gradients(piece.begin, piece.end));
      parameters_.give_up_gradients(piece);
    }
  }
}

// Parameters and parts begin at multiples of ExactSum's groups, so that the sum is the same however the model
// and its gradients are shared out.
double TrainingStep::sum_of_squares() {
  ExactSum sum;
  for_own_gradients([&](const Parameter&, TensorView gradient) { sum.add_squares(exec_, gradient); });
  Communicator& world = groups_.world;
  std::vector<ExactSum> all(static_cast<size_t>(world.size()));
  all[static_cast<size_t>(world.rank())] = sum;
  world.all_gather({all.data(), DType::u8, {static_cast<int64_t>(all.size() * sizeof(ExactSum))}});
  ExactSum total;
  for (const ExactSum& part : all) total.add(part);
  return total.value();
}

std::string TrainingStep::find_not_finite() {
  std::string found;
  for_own_gradients([&](const Parameter& parameter, TensorView gradient) {
    if (found.empty() && first_not_finite(exec_, gradient) >= 0) found = "the gradient of " + parameter.name;
  });
  for (const std::string& text : groups_.world.gather_texts(found)) {
    if (!text.empty()) return text;
  }
  return "the gradient norm";
}

std::array<double, 2> TrainingStep::sum_losses(const Stage::LossSum& own) {
  std::array<double, 2> sums{};
  // The ranks of a tensor group know the same losses.
  if (groups_.place.tensor == 0) sums = {own.loss, static_cast<double>(own.tokens)};
  const ProfileScope scope(exec_, "communication");
  groups_.world.sum(sums);
  return sums;
}

StepResult TrainingStep::run(const BatchSource& source, const TrainingState& state, int64_t samples,
                             double learning_rate, double loss_scale) {
  StepResult result;
  parameters_.forget_gradients();
  // Every token weighs one over the nominal number of tokens; once the number that counts is known, the
  // update makes it exact.
  const double nominal_tokens = static_cast<double>(samples * recipe_.data.sequence_length);
  const Stage::LossSum own = stage_.train(source, static_cast<uint64_t>(state.consumed_samples), samples,
                                          loss_scale / nominal_tokens);
  if (zero_stage_ < 2) stage_.finish_gradients(parameters_);
  data_parallel_->finish();
  const std::array<double, 2> sums = sum_losses(own);
  const double squares = sum_of_squares();
  result.loss_tokens = static_cast<int64_t>(sums[1]);
  const double counted = static_cast<double>(std::max<int64_t>(result.loss_tokens, 1));
  result.loss = sums[0] / counted;
  const double to_mean_loss = nominal_tokens / counted / loss_scale;
  result.gradient_norm = std::sqrt(squares) * to_mean_loss;
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) {
    result.skipped = true;
    result.not_finite = std::isfinite(result.loss) ? find_not_finite() : "the loss";
    return result;
  }
  double clip = 1;
  if (recipe_.optimizer.clip_norm > 0) {
    clip = std::min(1.0, recipe_.optimizer.clip_norm / (result.gradient_norm + 1e-6));
  }
  optimizer_.step(exec_, learning_rate, state.updates + 1, to_mean_loss * clip);
  gather_weights();
  return result;
}

double TrainingStep::validate(const BatchSource& source, int64_t samples) {
  const std::array<double, 2> sums = sum_losses(stage_.evaluate(source, samples));
  return sums[0] / std::max(sums[1], 1.0);
}

}  // namespace megalith
