#include "megalith/train/stage_layout.h"

#include <fmt/ranges.h>

#include <numeric>

#include "megalith/base/error.h"
#include "megalith/model/counts.h"

namespace megalith {

namespace {

// What the output layer costs, in layers.
double head_cost(const Recipe& recipe) {
  const double head = 2.0 * static_cast<double>(recipe.model.padded_vocabulary() * recipe.model.hidden_size);
  const double layers = forward_flops_per_token(recipe.model, recipe.data.sequence_length) - head;
  return head / (layers / static_cast<double>(recipe.model.num_layers));
}

// The numbers of tensor-parallel ranks that can share everything that is shared.
std::vector<int64_t> possible_tensor_ranks(const ModelConfig& model) {
  const int64_t common = std::gcd(model.num_kv_heads, model.ffn_hidden_size);
  std::vector<int64_t> possible;
  for (int64_t ranks = 1; ranks <= common; ++ranks) {
    if (common % ranks == 0) possible.push_back(ranks);
  }
  return possible;
}

}  // namespace

void check_layout(const Recipe& recipe, int ranks) {
  const ModelConfig& model = recipe.model;
  const int64_t tensor = recipe.parallel.tensor;
  check_input(
      model.num_heads % tensor == 0 && model.num_kv_heads % tensor == 0 &&
          model.ffn_hidden_size % tensor == 0,
      "parallel.tensor = {} cannot share the model's {} heads, {} key/value heads and {} feed-forward "
      "columns equally; possible are {}",
      tensor, model.num_heads, model.num_kv_heads, model.ffn_hidden_size,
      fmt::join(possible_tensor_ranks(model), ", "));
  check_input(!recipe.parallel.sequence_parallel || recipe.data.sequence_length % tensor == 0,
              "parallel.sequence_parallel splits sequences over parallel.tensor = {} ranks, which does not "
              "divide data.sequence_length = {}",
              tensor, recipe.data.sequence_length);
  process_grid(recipe, ranks);
}

ProcessGrid process_grid(const Recipe& recipe, int ranks) {
  return {ranks, static_cast<int>(recipe.parallel.pipeline), static_cast<int>(recipe.parallel.tensor)};
}

int64_t effective_zero_stage(const Recipe& recipe, const ProcessGrid& grid) {
  // On a disk the weights of a single rank, too, are whole only while they are used.
  const bool offloads = !recipe.parallel.zero_offload_directory.empty();
  return grid.data() > 1 || offloads ? recipe.parallel.zero_stage : 0;
}

PipelineShape pipeline_shape(const Recipe& recipe) {
  return {static_cast<int>(recipe.parallel.pipeline), static_cast<int>(recipe.parallel.virtual_pipeline)};
}

std::vector<ModelSlice> stage_slices(const Recipe& recipe, int stage) {
  const PipelineShape shape = pipeline_shape(recipe);
  // Looking up an embedding costs next to nothing.
  const std::vector<int64_t> layers = split_layers(recipe.parallel.layer_split, recipe.model.num_layers,
                                                   shape.pieces(), 0.0, head_cost(recipe));
  std::vector<ModelSlice> slices;
  int64_t first = 0;
  for (int piece = 0; piece < shape.pieces(); ++piece) {
    const int64_t end = first + layers[static_cast<size_t>(piece)];
    if (shape.stage_of(piece) == stage)
      slices.push_back({first, end, piece == 0, piece + 1 == shape.pieces()});
    first = end;
  }
  return slices;
}

int64_t count_micro_batches(const Recipe& recipe, int64_t samples) {
  return (samples + recipe.train.micro_batch - 1) / recipe.train.micro_batch;
}

PartRange own_micro_batches(const Recipe& recipe, int64_t samples, const ProcessGrid& grid,
                            const GridPlace& place) {
  return part_range(count_micro_batches(recipe, samples), place.data, grid.data());
}

std::vector<int64_t> most_micro_batches_alive(const Recipe& recipe, const ProcessGrid& grid,
                                              const GridPlace& place) {
  const PipelineShape shape = pipeline_shape(recipe);
  const int64_t own = own_micro_batches(recipe, recipe.train.global_batch, grid, place).size();
  const PipelineInstructions instructions =
      pipeline_instructions(recipe.parallel.pipeline_schedule, shape, own, place.pipeline);
  std::vector<int64_t> alive;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) alive.push_back(most_alive(instructions, chunk));
  return alive;
}

bool separates_lookup_gradient(const Recipe& recipe, const ProcessGrid& grid, const GridPlace& place) {
  // Stages 2 and 3 reduce the gradients of every micro-batch for themselves.
  return recipe.model.tied_embeddings && grid.pipeline() == 1 && effective_zero_stage(recipe, grid) < 2 &&
         own_micro_batches(recipe, recipe.train.global_batch, grid, place).size() > 1;
}

}  // namespace megalith
