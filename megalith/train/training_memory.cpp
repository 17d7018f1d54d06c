#include "megalith/train/training_memory.h"

#include <algorithm>

#include "megalith/train/optimizer.h"

namespace megalith {

namespace {

// The most that a backward pass holds in the workspace at once: in a block, the gradients of a branch's
// tensors; in the head, a chunk of logits. Scratch inside of operations (packing of matrix products, partial
// sums) comes on top.
uint64_t workspace_bytes(const ModelConfig& model, int64_t rows, size_t element) {
  const int64_t hidden = model.hidden_size;
  const int64_t attention = model.num_heads * model.head_size;
  const int64_t packed = attention + 2 * model.num_kv_heads * model.head_size;
  const int64_t dropout = model.hidden_dropout > 0 ? hidden : 0;
  const int64_t in_attention = dropout + 2 * hidden + attention + packed;
  const int64_t in_feed_forward = dropout + 2 * hidden + model.ffn_hidden_size;
  const int64_t block = rows * std::max(in_attention, in_feed_forward);
  const int64_t head =
      rows * 3 * hidden + std::min(rows, LanguageModelHead::kChunkRows) * model.padded_vocabulary();
  return static_cast<uint64_t>(std::max(block, head)) * element;
}

}  // namespace

std::vector<MemoryLine> predict_memory(Transformer& model, const Recipe& recipe, int ranks) {
  uint64_t elements = 0;
  model.walk([&](Parameter& parameter) {
    elements += (static_cast<uint64_t>(parameter.allocated_shape().elements()) + 15) / 16 * 16;
  });
  const uint64_t multiple = 16 * static_cast<uint64_t>(ranks);
  elements = (elements + multiple - 1) / multiple * multiple;
  const uint64_t owned = recipe.parallel.zero_stage > 0 ? elements / static_cast<uint64_t>(ranks) : elements;
  const DType compute = compute_type(recipe.train.precision);
  const int64_t rows =
      std::min(recipe.train.micro_batch, recipe.train.global_batch) * recipe.data.sequence_length;
  return {{"weights", elements * size_of(compute), 0},
          {"gradients", elements * 4, 0},
          {"optimizer states", owned * Optimizer::bytes_per_element(recipe.optimizer, compute), 0},
          {"activations", model.activation_bytes(rows, size_of(compute), recipe.train.recompute), 0},
          {"workspace", workspace_bytes(recipe.model, rows, size_of(compute)), 0}};
}

std::vector<MemoryLine> measure_memory(std::vector<MemoryLine> lines, const TrainingArenas& arenas) {
  for (MemoryLine& line : lines) {
    for (const Arena* arena :
         {&arenas.weights, &arenas.gradients, &arenas.optimizer, &arenas.activations, &arenas.workspace}) {
      if (arena->name() == line.kind) line.measured = arena->high_water();
    }
  }
  return lines;
}

}  // namespace megalith
