#include "megalith/train/stage.h"

#include <algorithm>

#include "megalith/ops/elementwise.h"

namespace megalith {

namespace {

template <class T>
TensorView view_of(std::vector<T>& values, const Shape& shape) {
  return {values.data(), dtype_of<T>(), shape};
}

}  // namespace

Stage::Stage(const Recipe& recipe, TrainingArenas& arenas, const ExecContext& exec, ParallelGroups& groups)
    : recipe_(recipe),
      exec_(exec),
      groups_(groups),
      shape_(pipeline_shape(recipe)),
      // Evaluation saves the inside of one block at a time, where training has room for as much.
      evaluation_(arenas.activations(0),
                  recipe.train.recompute == Recompute::full ? arenas.recomputed : arenas.activations(0)) {
  const std::vector<int64_t> alive = most_micro_batches_alive(recipe, groups.grid, groups.place);
  const std::vector<ModelSlice> slices = stage_slices(recipe, groups.place.pipeline);
  size_t arena = 0;
  int64_t unit = 0;
  for (size_t chunk = 0; chunk < slices.size(); ++chunk) {
    pieces_.push_back(std::make_unique<Transformer>(
        recipe.model, TensorParallel(*groups.tensor, recipe.parallel.sequence_parallel), slices[chunk]));
    first_unit_.push_back(unit);
    unit += pieces_.back()->units();
    std::vector<std::unique_ptr<Slot>>& slots = slots_.emplace_back();
    for (int64_t i = 0; i < alive[chunk]; ++i) {
      slots.push_back(std::make_unique<Slot>(arenas.activations(arena++), arenas.recomputed));
    }
  }
  if (separates_lookup_gradient(recipe, groups.grid, groups.place)) {
    const Shape shape = pieces_.front()->embedding()->token_table().allocated_shape();
    lookup_gradient_ = arenas.gradients.allocate(DType::f32, shape);
  }
}

void Stage::walk(const ParameterVisitor& visitor) {
  for (const auto& piece : pieces_) piece->walk(visitor);
}

// Micro-batches of a chunk are alive in an unbroken row, so that their numbers modulo the most alive differ.
Stage::Slot& Stage::slot(int chunk, int64_t micro_batch) {
  auto& slots = slots_[static_cast<size_t>(chunk)];
  return *slots[static_cast<size_t>(micro_batch) % slots.size()];
}

int64_t Stage::rows_of(int64_t micro_batch) const {
  const int64_t offset = (work_.own.begin + micro_batch) * recipe_.train.micro_batch;
  return std::min(recipe_.train.micro_batch, work_.samples - offset);
}

Shape Stage::stream_shape(int64_t micro_batch) const {
  const int64_t rows = rows_of(micro_batch) * recipe_.data.sequence_length;
  return {pieces_.front()->tensor_parallel().stream_rows(rows), recipe_.model.hidden_size};
}

// Every stage reads the batch itself: it needs positions, and the tokens or the targets.
void Stage::load(Slot& slot, int64_t micro_batch) {
  const int64_t offset = (work_.own.begin + micro_batch) * recipe_.train.micro_batch;
  const uint64_t first = work_.first_sample + static_cast<uint64_t>(offset);
  Batch& batch = slot.batch;
  work_.source->fill(first, rows_of(micro_batch), batch);
  const int64_t n = batch.rows * batch.sequence_length;
  slot.loss_weights.resize(static_cast<size_t>(n));
  for (size_t i = 0; i < slot.loss_weights.size(); ++i) {
    slot.loss_weights[i] = batch.loss_mask[i] * static_cast<float>(work_.loss_weight);
    if (batch.loss_mask[i] == 0) batch.targets[i] = -1;
  }
  TokenBatch& tokens = slot.tokens;
  tokens.batch = batch.rows;
  tokens.tokens = batch.sequence_length;
  tokens.token_ids = view_of(batch.tokens, {n});
  tokens.positions = view_of(batch.positions, {n});
  if (recipe_.data.reset_at_documents) {
    tokens.document_starts = view_of(batch.document_start, {batch.rows, batch.sequence_length});
  }
  tokens.targets = view_of(batch.targets, {n});
  tokens.loss_weights = view_of(slot.loss_weights, {n});
  tokens.first_position = first * static_cast<uint64_t>(batch.sequence_length);
}

Pass Stage::pass(int chunk, Slot& slot) const {
  return {exec_,          slot.tokens,
          slot.saved,     recipe_.train.recompute,
          work_.training, static_cast<uint64_t>(recipe_.train.seed),
          data_parallel_, first_unit_[static_cast<size_t>(chunk)]};
}

std::vector<UnitRange> Stage::units(const ParameterBuffers& parameters) const {
  std::vector<UnitRange> units;
  size_t slot = 0;
  for (const auto& piece : pieces_) {
    for (int64_t unit = 0; unit < piece->units(); ++unit) {
      UnitRange& range = units.emplace_back();
      range.first_slot = slot;
      piece->walk_unit(unit, [&](Parameter&) { ++slot; });
      range.end_slot = slot;
    }
  }
  // The head of a tied model without a final norm has no parameters: it is an empty range at the end.
  const auto first = [&](size_t unit) {
    const size_t begin = unit < units.size() ? units[unit].first_slot : parameters.slots().size();
    return begin < parameters.slots().size() ? parameters.slots()[begin].offset : parameters.elements();
  };
  for (size_t unit = 0; unit < units.size(); ++unit) units[unit].elements = {first(unit), first(unit + 1)};
  return units;
}

std::vector<bool> Stage::deferred_units() const {
  std::vector<bool> deferred;
  for (const auto& piece : pieces_) {
    const ModelSlice& slice = piece->slice();
    for (int64_t unit = 0; unit < piece->units(); ++unit) {
      const bool embedding = slice.has_embedding && unit == 0;
      const bool head = slice.has_head && unit + 1 == piece->units();
      deferred.push_back(embedding || (head && recipe_.model.tied_embeddings && groups_.grid.pipeline() > 1));
    }
  }
  return deferred;
}

int64_t Stage::idle_micro_batches() const {
  const GridPlace first{groups_.place.pipeline, 0, groups_.place.tensor};
  return own_micro_batches(recipe_, work_.samples, groups_.grid, first).size() - work_.own.size();
}

void Stage::add_losses(const Slot& slot, TensorView losses) {
  double sum = 0;
  const float* values = losses.data<float>();
  for (int64_t i = 0; i < losses.elements(); ++i) {
    if (slot.batch.loss_mask[static_cast<size_t>(i)] != 0) sum += values[i];
  }
  work_.sum.loss += sum;
  work_.sum.tokens += slot.batch.loss_tokens;
}

TensorView Stage::begin_forward(int chunk, int64_t micro_batch) {
  Slot& slot = work_.training ? this->slot(chunk, micro_batch) : evaluation_;
  load(slot, micro_batch);
  if (work_.training) return pieces_[static_cast<size_t>(chunk)]->begin(pass(chunk, slot), stream_dtype());
  return streams_[0].slice(0, stream_shape(micro_batch)[0]);
}

TensorView Stage::forward(int chunk, int64_t micro_batch, TensorView x) {
  const TraceScope scope(trace(), work_.training ? "forward" : "evaluation", Trace::Track::passes);
  Transformer& piece = *pieces_[static_cast<size_t>(chunk)];
  if (work_.training) {
    Slot& slot = this->slot(chunk, micro_batch);
    slot.output = piece.forward(pass(chunk, slot), x);
    return slot.output;
  }
  const Pass forward = pass(chunk, evaluation_);
  const TensorView y = piece.forward_only(forward, x, streams_[1].slice(0, x.rows()));
  if (piece.slice().has_head) {
    ArenaScope arena(exec_.workspace);
    const TensorView losses = exec_.workspace.allocate(DType::f32, {evaluation_.tokens.rows()});
    piece.head_loss(forward, y, losses);
    add_losses(evaluation_, losses);
  }
  return y;
}

void Stage::backward(int chunk, int64_t micro_batch, TensorView d) {
  Transformer& piece = *pieces_[static_cast<size_t>(chunk)];
  Slot& slot = this->slot(chunk, micro_batch);
  const TraceScope scope(trace(), "backward", Trace::Track::passes);
  data_parallel_->begin_micro_batch(micro_batch + 1 == work_.own.size());
  if (piece.slice().has_head) {
    ArenaScope arena(exec_.workspace);
    const TensorView losses = exec_.workspace.allocate(DType::f32, {slot.tokens.rows()});
    piece.head_backward(pass(chunk, slot), slot.output, losses, d);
    add_losses(slot, losses);
  }
  piece.backward(pass(chunk, slot), d);
}

Stage::LossSum Stage::train(const BatchSource& source, uint64_t first_sample, int64_t samples,
                            double loss_weight) {
  const PartRange own = own_micro_batches(recipe_, samples, groups_.grid, groups_.place);
  work_ = {&source, first_sample, samples, own, loss_weight, true, {}};
  if (!lookup_gradient_.empty())
    pieces_.front()->embedding()->separate_lookup_gradient(own.size() > 1 ? lookup_gradient_ : TensorView());
  data_parallel_->begin_step();
  run_pipeline(
      exec_,
      pipeline_instructions(recipe_.parallel.pipeline_schedule, shape_, own.size(), groups_.place.pipeline),
      shape_, *groups_.pipeline, *this, true);
  for (int64_t idle = idle_micro_batches(); idle > 0; --idle) {
    data_parallel_->begin_micro_batch(true);
    data_parallel_->idle_micro_batch();
  }
  return work_.sum;
}

Stage::LossSum Stage::evaluate(const BatchSource& source, int64_t samples) {
  work_ = {&source, 0,     samples, own_micro_batches(recipe_, samples, groups_.grid, groups_.place),
           1.0,     false, {}};
  if (work_.own.size() > 0) {
    ArenaScope scope(exec_.workspace);
    for (TensorView& stream : streams_) stream = exec_.workspace.allocate(stream_dtype(), stream_shape(0));
    run_pipeline(exec_, forward_instructions(shape_, work_.own.size()), shape_, *groups_.pipeline, *this,
                 false);
  }
  for (int64_t idle = idle_micro_batches(); idle > 0; --idle) data_parallel_->idle_evaluation();
  return work_.sum;
}

void Stage::finish_gradients(ParameterBuffers& parameters) {
  if (!lookup_gradient_.empty()) pieces_.front()->embedding()->add_lookup_gradient(exec_);
  parameters.finish_gradients(exec_);
  exchange_tied_gradient();
}

void Stage::exchange_tied_gradient() {
  const int stages = groups_.grid.pipeline();
  if (!recipe_.model.tied_embeddings || stages == 1 || !(groups_.first_stage() || groups_.last_stage()))
    return;
  const ProfileScope scope(exec_, "pipeline");
  TensorView gradient;
  walk([&](Parameter& parameter) {
    if (parameter.name == "embedding.token.weight") gradient = parameter.gradient;
  });
  gradient = gradient.reshape({gradient.elements()});
  constexpr int64_t kPiece = int64_t{1} << 20;
  ArenaScope arena(exec_.workspace);
  const TensorView received = exec_.workspace.allocate(DType::f32, {std::min(kPiece, gradient.elements())});
  const int other = groups_.first_stage() ? stages - 1 : 0;
  for (int64_t at = 0; at < gradient.elements(); at += kPiece) {
    const TensorView own = gradient.slice(at, std::min(gradient.elements(), at + kPiece));
    const TensorView theirs = received.slice(0, own.elements());
    const auto sent = groups_.pipeline->send(own, other, 0);
    groups_.pipeline->recv(theirs, other, 0);
    sent->wait();
    // Addition commutes, so that both stages get the same bits.
    add(ExecContext{exec_.workspace, exec_.threads}, theirs, own);
  }
}

}  // namespace megalith
