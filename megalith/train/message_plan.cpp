#include "megalith/train/message_plan.h"

#include <algorithm>

#include "megalith/model/transformer.h"
#include "megalith/train/stage_layout.h"

namespace megalith {

namespace {

// What a stage holds, as far as messages depend on it.
struct StageContents {
  std::vector<ModelSlice> slices;
  uint64_t elements = 0;          // of the flat buffers
  uint64_t partial_elements = 0;  // gradients that are partial sums over the tensor group
  uint64_t token_table_elements = 0;

  int64_t layers() const {
    int64_t total = 0;
    for (const ModelSlice& slice : slices) total += slice.layers();
    return total;
  }
  bool has_embedding() const { return slices.front().has_embedding; }
  bool has_head() const { return slices.back().has_head; }
};

StageContents contents_of(const Recipe& recipe, const ProcessGrid& grid, const GridPlace& place) {
  StageContents stage;
  stage.slices = stage_slices(recipe, place.pipeline);
  const TensorParallel tensor =
      TensorParallel::described(place.tensor, grid.tensor(), recipe.parallel.sequence_parallel);
  int64_t used = 0;
  for (const ModelSlice& slice : stage.slices) {
    Transformer model(recipe.model, tensor, slice);
    model.walk([&](Parameter& parameter) {
      const int64_t own = parameter.allocated_shape().elements();
      used += slot_elements(own);
      if (parameter.gradient_is_partial) stage.partial_elements += static_cast<uint64_t>(own);
      if (parameter.name == "embedding.token.weight") stage.token_table_elements = static_cast<uint64_t>(own);
    });
  }
  stage.elements = static_cast<uint64_t>(flat_elements(used, grid.data()));
  return stage;
}

// Adds up messages of one kind; those of size 0 do not exist.
void add(MessageLine& line, int64_t calls, uint64_t bytes_each) {
  if (calls == 0 || bytes_each == 0) return;
  line.calls += calls;
  line.largest = std::max(line.largest, bytes_each);
  line.bytes += static_cast<uint64_t>(calls) * bytes_each;
}

// Sums and gathers of a stream [N,C] for each micro-batch.
int64_t stream_calls(const Recipe& recipe, const StageContents& stage) {
  const Recompute recompute = recipe.train.recompute;
  const int64_t layers = stage.layers();
  // What is computed again begins with a gather of each branch's input. Its output is summed if the other
  // branch or a norm at its end needs it.
  const bool sequential = recipe.model.branches == BranchOrder::sequential;
  const int64_t norm_at_end = recipe.model.norm_placement == NormPlacement::pre ? 0 : 1;
  int64_t gathers = 0, sums = 0;
  if (recompute == Recompute::attention) gathers = 1, sums = norm_at_end;
  if (recompute == Recompute::full) gathers = 2, sums = (sequential ? 1 : 0) + norm_at_end;
  if (!recipe.parallel.sequence_parallel) {
    // Behind each of the two branches of a layer, and before it in the backward pass.
    return layers * (4 + sums) + (stage.has_embedding() ? 1 : 0) + (stage.has_head() ? 1 : 0);
  }
  // A gather and a reduce-scatter in place of each.
  const int64_t again = gathers + sums;
  return layers * (8 + again) + (stage.has_embedding() ? 2 : 0) + (stage.has_head() ? 2 : 0);
}

}  // namespace

std::vector<MessageLine> predict_messages(const Recipe& recipe, const ProcessGrid& grid,
                                          const GridPlace& place) {
  const StageContents stage = contents_of(recipe, grid, place);
  const uint64_t element = size_of(compute_type(recipe.train.precision));
  MessageLine streams{GridAxis::tensor, "streams of layers, embedding and head"};
  MessageLine losses{GridAxis::tensor, "normalisers and target logits of the loss"};
  MessageLine norms{GridAxis::tensor, "gradients of norms"};
  MessageLine activations{GridAxis::pipeline, "activations and their gradients"};
  MessageLine tied{GridAxis::pipeline, "gradients of the tied token table"};
  MessageLine gradients{GridAxis::data, "gradients (F32), in buckets"};
  MessageLine weights{GridAxis::data, "updated weights"};

  const PartRange own = own_micro_batches(recipe, recipe.train.global_batch, grid, place);
  const int64_t last = count_micro_batches(recipe, recipe.train.global_batch) - 1;
  const PipelineShape shape = pipeline_shape(recipe);
  const auto add_micro_batches = [&](int64_t count, int64_t samples) {
    const int64_t rows = samples * recipe.data.sequence_length;
    const uint64_t whole = static_cast<uint64_t>(rows * recipe.model.hidden_size) * element;
    if (grid.tensor() > 1) {
      add(streams, count * stream_calls(recipe, stage), whole);
      for (int64_t at = 0; stage.has_head() && at < rows; at += LanguageModelHead::kChunkRows) {
        const int64_t chunk = std::min(rows - at, LanguageModelHead::kChunkRows);
        add(losses, count, static_cast<uint64_t>(chunk * 2 * 4 * grid.tensor()));
      }
    }
    const uint64_t stream =
        recipe.parallel.sequence_parallel ? whole / static_cast<uint64_t>(grid.tensor()) : whole;
    for (int chunk = 0; chunk < shape.chunks && shape.stages > 1; ++chunk) {
      const int piece = shape.piece(place.pipeline, chunk);
      // To and from each neighbour once.
      if (piece > 0) add(activations, 2 * count, stream);
      if (piece + 1 < shape.pieces()) add(activations, 2 * count, stream);
    }
  };
  const bool has_last = own.begin <= last && last < own.end;
  const int64_t short_samples = recipe.train.global_batch - last * recipe.train.micro_batch;
  add_micro_batches(own.size() - (has_last ? 1 : 0), recipe.train.micro_batch);
  if (has_last) add_micro_batches(1, short_samples);

  // With ZeRO 2 and 3 gradients go to their owners after every micro-batch, of which all ranks take part in
  // as many as the first has.
  const int64_t zero_stage = effective_zero_stage(recipe, grid);
  const GridPlace busiest{place.pipeline, 0, place.tensor};
  const int64_t rounds =
      zero_stage < 2 ? 1 : own_micro_batches(recipe, recipe.train.global_batch, grid, busiest).size();
  if (grid.tensor() > 1) add(norms, rounds, 4 * stage.partial_elements);
  if (recipe.model.tied_embeddings && shape.stages > 1 && (stage.has_embedding() || stage.has_head()))
    add(tied, 2, 4 * stage.token_table_elements);
  if (grid.data() > 1) {
    add(gradients, rounds, 4 * stage.elements);
    // Stage 3 gathers weights forward and backward; what is still there is not gathered again.
    if (zero_stage > 0) add(weights, zero_stage < 3 ? 1 : 2 * rounds, element * stage.elements);
  }
  std::vector<MessageLine> lines;
  for (const MessageLine& line : {streams, losses, norms, activations, tied, gradients, weights}) {
    if (line.calls > 0) lines.push_back(line);
  }
  return lines;
}

}  // namespace megalith
