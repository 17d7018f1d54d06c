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

TrainingStep::TrainingStep(const Recipe& recipe, TrainingArenas& arenas, const ExecContext& exec,
                           Communicator& ranks)
    : recipe_(recipe),
      exec_(exec),
      ranks_(ranks),
      model_(recipe.model),
      parameters_([this](const ParameterVisitor& visitor) { model_.walk(visitor); },
                  compute_type(recipe.train.precision), arenas.weights, &arenas.gradients, ranks.size()),
      optimizer_(recipe.optimizer, parameters_, arenas.optimizer,
                 recipe.parallel.zero_stage > 0 ? own_part() : PartRange{0, parameters_.elements()}),
      saved_(arenas.activations) {}

PartRange TrainingStep::own_part() const {
  return part_range(parameters_.elements(), ranks_.rank(), ranks_.size());
}

void TrainingStep::initialize() {
  // The gradient buffer is free before the first step and holds the whole walk in fp32.
  const TensorView whole = parameters_.gradients();
  initialize_parameters(exec_, parameters_.slots(), static_cast<uint64_t>(recipe_.train.seed), whole);
  convert(exec_, whole.slice(optimizer_.range().begin, optimizer_.range().end), optimizer_.master());
  fill_zero(exec_, whole);
  refresh_weights();
}

void TrainingStep::refresh_weights() {
  optimizer_.refresh_values(exec_);
  gather_weights();
}

void TrainingStep::gather_weights() {
  if (recipe_.parallel.zero_stage == 0) return;
  const ProfileScope scope(exec_, "communication");
  ranks_.all_gather(parameters_.values());
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
  const PartRange own = own_part();
  std::string found;
  for (const ParameterSlot& slot : parameters_.slots()) {
    const int64_t begin = std::max(slot.offset, own.begin),
                  end = std::min(slot.offset + slot.elements, own.end);
    if (begin >= end || first_not_finite(exec_, parameters_.gradients().slice(begin, end)) < 0) continue;
    found = "the gradient of " + slot.parameter->name;
    break;
  }
  for (const std::string& text : ranks_.gather_texts(found)) {
    if (!text.empty()) return text;
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
  const int64_t micro_batches = (samples + recipe_.train.micro_batch - 1) / recipe_.train.micro_batch;
  const PartRange own = part_range(micro_batches, ranks_.rank(), ranks_.size());
  double sums[2] = {0, 0};  // loss, tokens
  for (int64_t micro_batch = own.begin; micro_batch < own.end; ++micro_batch) {
    const int64_t offset = micro_batch * recipe_.train.micro_batch;
    const int64_t rows = std::min(recipe_.train.micro_batch, samples - offset);
    const uint64_t first = static_cast<uint64_t>(state.consumed_samples + offset);
    source.fill(first, rows, batch_);
    const TokenBatch tokens = view(loss_scale / nominal_tokens, first);
    ArenaScope scope(exec_.workspace);
    const TensorView losses = exec_.workspace.allocate(DType::f32, {tokens.rows()});
    model_.loss_and_gradient(make_pass(tokens, true), losses);
    const LossSum sum = sum_losses(losses);
    sums[0] += sum.loss;
    sums[1] += static_cast<double>(sum.tokens);
  }
  parameters_.finish_gradients(exec_);
  {
    const ProfileScope scope(exec_, "communication");
    ranks_.sum(sums);
    if (recipe_.parallel.zero_stage == 0) {
      ranks_.all_reduce(parameters_.gradients());
    } else {
      ranks_.reduce_scatter(parameters_.gradients());
    }
  }
  double squares = sum_of_squares(exec_, parameters_.gradients().slice(own_part().begin, own_part().end));
  ranks_.sum({&squares, 1});
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
  double sums[2] = {0, 0};
  const int64_t micro_batches = (samples + recipe_.train.micro_batch - 1) / recipe_.train.micro_batch;
  const PartRange own = part_range(micro_batches, ranks_.rank(), ranks_.size());
  for (int64_t micro_batch = own.begin; micro_batch < own.end; ++micro_batch) {
    const int64_t first = micro_batch * recipe_.train.micro_batch;
    const int64_t rows = std::min(recipe_.train.micro_batch, samples - first);
    source.fill(static_cast<uint64_t>(first), rows, batch_);
    const TokenBatch tokens = view(1.0, static_cast<uint64_t>(first));
    ArenaScope scope(exec_.workspace);
    const TensorView losses = exec_.workspace.allocate(DType::f32, {tokens.rows()});
    model_.loss(make_pass(tokens, false), losses);
    const LossSum sum = sum_losses(losses);
    sums[0] += sum.loss;
    sums[1] += static_cast<double>(sum.tokens);
  }
  ranks_.sum(sums);
  return sums[0] / std::max(sums[1], 1.0);
}

}  // namespace megalith
