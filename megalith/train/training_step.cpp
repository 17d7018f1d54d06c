#include "megalith/train/training_step.h"

#include <algorithm>
#include <cmath>

#include "megalith/ops/elementwise.h"

namespace megalith {

namespace {

template <class T>
TensorView view_of(std::vector<T>& values, const Shape& shape) {
  return {values.data(), dtype_of<T>(), shape};
}

}  // namespace

TrainingStep::TrainingStep(const Recipe& recipe, TrainingArenas& arenas, const ExecContext& exec)
    : recipe_(recipe),
      exec_(exec),
      model_(recipe.model),
      parameters_([this](const ParameterVisitor& visitor) { model_.walk(visitor); },
                  compute_type(recipe.train.precision), arenas.weights, &arenas.gradients),
      optimizer_(recipe.optimizer, parameters_, arenas.optimizer),
      saved_(arenas.activations) {}

void TrainingStep::initialize() {
  initialize_parameters(exec_, parameters_.slots(), static_cast<uint64_t>(recipe_.train.seed),
                        optimizer_.master());
  optimizer_.refresh_values(exec_);
}

Pass TrainingStep::make_pass(const TokenBatch& tokens, bool training) {
  return {
      exec_, tokens, saved_, recipe_.train.recompute, training, static_cast<uint64_t>(recipe_.train.seed)};
}

TokenBatch TrainingStep::view(double loss_weight, uint64_t first_sample) {
  const int64_t n = batch_.rows * batch_.sequence_length;
  loss_weights_.resize(static_cast<size_t>(n));
  for (size_t i = 0; i < loss_weights_.size(); ++i) {
    loss_weights_[i] = batch_.loss_mask[i] * static_cast<float>(loss_weight);
    if (batch_.loss_mask[i] == 0) batch_.targets[i] = -1;
  }
  TokenBatch tokens;
  tokens.batch = batch_.rows;
  tokens.tokens = batch_.sequence_length;
  tokens.token_ids = view_of(batch_.tokens, {n});
  tokens.positions = view_of(batch_.positions, {n});
  if (recipe_.data.reset_at_documents) {
    tokens.document_starts = view_of(batch_.document_start, {batch_.rows, batch_.sequence_length});
  }
  tokens.targets = view_of(batch_.targets, {n});
  tokens.loss_weights = view_of(loss_weights_, {n});
  tokens.first_position = first_sample * static_cast<uint64_t>(batch_.sequence_length);
  return tokens;
}

TrainingStep::LossSum TrainingStep::sum_losses(TensorView losses) const {
  LossSum sum;
  const float* values = losses.data<float>();
  for (int64_t i = 0; i < losses.elements(); ++i) {
    if (batch_.loss_mask[static_cast<size_t>(i)] != 0) sum.loss += values[i];
  }
  sum.tokens = batch_.loss_tokens;
  return sum;
}

std::string TrainingStep::find_not_finite() {
  for (const ParameterSlot& slot : parameters_.slots()) {
    if (first_not_finite(exec_, slot.parameter->gradient) >= 0)
      return "the gradient of " + slot.parameter->name;
  }
  return "the gradient norm";
}

StepResult TrainingStep::run(const BatchSource& source, const TrainingState& state, int64_t samples,
                             double learning_rate, double loss_scale) {
  StepResult result;
  parameters_.forget_gradients();
  // Every token weighs one over the nominal number of tokens; once the number that counts is known, the
  // update makes it exact.
  const double nominal_tokens = static_cast<double>(samples * recipe_.data.sequence_length);
  double loss = 0;
  for (int64_t offset = 0; offset < samples; offset += recipe_.train.micro_batch) {
    const int64_t rows = std::min(recipe_.train.micro_batch, samples - offset);
    const uint64_t first = static_cast<uint64_t>(state.consumed_samples + offset);
    source.fill(first, rows, batch_);
    const TokenBatch tokens = view(loss_scale / nominal_tokens, first);
    ArenaScope scope(exec_.workspace);
    const TensorView losses = exec_.workspace.allocate(DType::f32, {tokens.rows()});
    model_.loss_and_gradient(make_pass(tokens, true), losses);
    const LossSum sum = sum_losses(losses);
    loss += sum.loss;
    result.loss_tokens += sum.tokens;
  }
  parameters_.finish_gradients(exec_);
  const double counted = static_cast<double>(std::max<int64_t>(result.loss_tokens, 1));
  result.loss = loss / counted;
  const double to_mean_loss = nominal_tokens / counted / loss_scale;
  result.gradient_norm = std::sqrt(sum_of_squares(exec_, parameters_.gradients())) * to_mean_loss;
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
  return result;
}

double TrainingStep::validate(const BatchSource& source, int64_t samples) {
  LossSum total;
  for (int64_t first = 0; first < samples; first += recipe_.train.micro_batch) {
    const int64_t rows = std::min(recipe_.train.micro_batch, samples - first);
    source.fill(static_cast<uint64_t>(first), rows, batch_);
    const TokenBatch tokens = view(1.0, static_cast<uint64_t>(first));
    ArenaScope scope(exec_.workspace);
    const TensorView losses = exec_.workspace.allocate(DType::f32, {tokens.rows()});
    model_.loss(make_pass(tokens, false), losses);
    const LossSum sum = sum_losses(losses);
    total.loss += sum.loss;
    total.tokens += sum.tokens;
  }
  return total.loss / static_cast<double>(std::max<int64_t>(total.tokens, 1));
}

}  // namespace megalith
