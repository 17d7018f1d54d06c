#include "megalith/train/training_memory.h"

#include <algorithm>

#include "megalith/parallel/pipeline_executor.h"
#include "megalith/train/optimizer.h"
#include "megalith/train/stage_layout.h"

namespace megalith {

namespace {

// The most that a backward pass holds in the workspace at once: in a block, the gradients of a branch's
// tensors; in the head, a chunk of logits. Scratch inside of operations (packing of matrix products, partial
// sums) comes on top.
uint64_t workspace_bytes(const ModelConfig& model, const TensorParallel& tensor, int64_t rows,
                         size_t element) {
  const int64_t ranks = tensor.size(), hidden = model.hidden_size;
  const int64_t stream = tensor.stream_rows(rows) * hidden;
  const int64_t attention = model.num_heads * model.head_size / ranks;
  const int64_t packed = attention + 2 * model.num_kv_heads * model.head_size / ranks;
  // The gradient behind a branch, masked, gathered or through a norm, is another tensor than the stream's.
  const bool norms_branch = model.norm_placement == NormPlacement::both;
  const int64_t behind = model.hidden_dropout > 0 || tensor.sequence_parallel() || norms_branch ? hidden : 0;
  // Before a norm behind the sum, and in front of two parallel branches, the gradient exists twice.
  const bool twice = model.norm_placement == NormPlacement::post || model.branches != BranchOrder::sequential;
  const int64_t normed_heads = model.qk_norm ? attention + model.num_kv_heads * model.head_size / ranks : 0;
  const int64_t block =
      (twice ? 2 : 1) * stream +
      rows * (behind + hidden + std::max(attention + packed + normed_heads, model.ffn_hidden_size / ranks));
  const int64_t columns = (model.padded_vocabulary() + ranks - 1) / ranks;
  const int64_t transformed = model.head == HeadKind::masked_language_model ? 3 : 0;
  const int64_t head = (1 + transformed) * stream + 2 * rows * hidden +
                       std::min(rows, LanguageModelHead::kChunkRows) * columns;
  return static_cast<uint64_t>(std::max(block, head)) * element;
}

}  // namespace

ZeroSharding::Options zero_sharding_options(const Recipe& recipe) {
  return {static_cast<int>(recipe.parallel.zero_stage), recipe.model.tied_embeddings,
          recipe.parallel.zero_persistent_elements, recipe.model.embedding_norm};
}

uint64_t TrainingArenas::high_water(const std::string& kind) const {
  uint64_t bytes = 0;
  for (const Arena* arena : {&weights, &gradients, &optimizer, &buckets, &recomputed, &workspace}) {
    if (arena->name() == kind) bytes += arena->high_water();
  }
  for (const Arena& arena : alive_) {
    if (arena.name() == kind) bytes += arena.high_water();
  }
  return bytes;
}

void TrainingArenas::prepare(const std::vector<MemoryLine>& predicted) {
  // Predictions of these two leave out rounding and the scratch of operations. Address space costs nothing.
  const auto with_room = [](uint64_t bytes) { return 2 * bytes + (uint64_t{256} << 20); };
  for (const MemoryLine& line : predicted) {
    if (line.kind == "activations") {
      expected_activations_ = with_room(line.predicted);
      recomputed.expect(expected_activations_);
    }
    if (line.kind == workspace.name()) workspace.expect(with_room(line.predicted));
    for (Arena* arena : {&weights, &gradients, &optimizer, &buckets}) {
      if (arena->name() != line.kind) continue;
      if (line.in_memory()) {
        arena->expect(line.predicted);
      } else {
        arena->move_to_file(line.directory, line.predicted);
      }
    }
  }
}

std::vector<MemoryLine> predict_memory(const Recipe& recipe, const ProcessGrid& grid,
                                       const GridPlace& place) {
  const DType compute = compute_type(recipe.train.precision);
  const size_t element = size_of(compute);
  const int64_t rows =
      std::min(recipe.train.micro_batch, recipe.train.global_batch) * recipe.data.sequence_length;
  const TensorParallel tensor =
      TensorParallel::described(place.tensor, grid.tensor(), recipe.parallel.sequence_parallel);
  const std::vector<int64_t> alive = most_micro_batches_alive(recipe, grid, place);
  const std::vector<ModelSlice> slices = stage_slices(recipe, place.pipeline);
  const int64_t zero_stage = effective_zero_stage(recipe, grid);
  int64_t used = 0;
  uint64_t lookup_elements = 0, activations = 0, recomputed = 0;
  std::vector<UnitRange> units;
  for (size_t chunk = 0; chunk < slices.size(); ++chunk) {
    Transformer model(recipe.model, tensor, slices[chunk]);
    for (int64_t unit = 0; unit < model.units(); ++unit) {
      units.emplace_back().elements.begin = used;
      model.walk_unit(unit, [&](Parameter& parameter) {
        const int64_t own = parameter.allocated_shape().elements();
        if (parameter.name == "embedding.token.weight" && separates_lookup_gradient(recipe, grid, place))
          lookup_elements = static_cast<uint64_t>(own);
        used += slot_elements(own);
      });
      units.back().elements.end = used;
    }
    activations +=
        static_cast<uint64_t>(alive[chunk]) * model.kept_bytes(rows, element, recipe.train.recompute);
    recomputed = std::max<uint64_t>(recomputed, model.transient_bytes(rows, element, recipe.train.recompute));
  }
  units.back().elements.end = flat_elements(used, grid.data());
  const uint64_t elements = static_cast<uint64_t>(units.back().elements.end);
  const uint64_t part = elements / static_cast<uint64_t>(grid.data());
  const uint64_t stream =
      static_cast<uint64_t>(tensor.stream_rows(rows) * recipe.model.hidden_size) * element;
  const uint64_t messages = static_cast<uint64_t>(pipeline_buffers(pipeline_shape(recipe)) - 1) * stream;
  return {
      {"weights", (zero_stage < 3 ? elements : part) * element, 0, recipe.parallel.zero_offload_directory},
      {"gradients", ((zero_stage < 2 ? elements : part) + lookup_elements) * 4, 0,
       recipe.parallel.zero_offload_directory},
      {"optimizer states",
       (zero_stage < 1 ? elements : part) * Optimizer::bytes_per_element(recipe.optimizer, compute), 0,
       recipe.optimizer.offload_directory},
      {"buckets",
       zero_stage < 2 ? 0 : ZeroSharding::buffer_bytes(units, zero_sharding_options(recipe), element), 0},
      {"activations", activations + recomputed, 0},
      {"workspace", workspace_bytes(recipe.model, tensor, rows, element) + messages, 0}};
}

std::vector<MemoryLine> measure_memory(std::vector<MemoryLine> lines, const TrainingArenas& arenas) {
  for (MemoryLine& line : lines) line.measured = arenas.high_water(line.kind);
  return lines;
}

}  // namespace megalith
