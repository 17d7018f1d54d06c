#include "megalith/parallel/pipeline_schedule.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "megalith/base/error.h"

namespace megalith {

namespace {

using Kind = PipelineInstruction::Kind;

// Forward passes of a stage in order: micro-batches in groups as large as the pipeline is deep; each group
// goes through all chunks before the next one begins. Micro-batches from `micro_batches` on do not exist;
// they fill the last group, so that the order is that of a full one.
PipelineInstructions passes(Kind kind, const PipelineShape& shape, int64_t groups) {
  PipelineInstructions list;
  for (int64_t group = 0; group < groups; ++group) {
    for (int i = 0; i < shape.chunks; ++i) {
      const int chunk = kind == Kind::forward ? i : shape.chunks - 1 - i;
      for (int j = 0; j < shape.stages; ++j) list.push_back({kind, chunk, group * shape.stages + j});
    }
  }
  return list;
}

PipelineInstructions existing(PipelineInstructions list, int64_t micro_batches) {
  std::erase_if(list, [&](const PipelineInstruction& each) { return each.micro_batch >= micro_batches; });
  return list;
}

std::vector<int64_t> parse_list(const std::string& text) {
  std::vector<int64_t> numbers;
  const char *at = text.data(), *const end = text.data() + text.size();
  while (true) {
    int64_t number = 0;
    const auto [next, code] = std::from_chars(at, end, number);
    check_input(
        code == std::errc() && number >= 1 && (next == end || *next == ','),
        "parallel.layer_split = \"{}\" is neither \"even\", \"cost\" nor numbers of layers from 1 on, "
        "like \"3,4,5\"",
        text);
    numbers.push_back(number);
    if (next == end) return numbers;
    at = next + 1;
  }
}

}  // namespace

PipelineInstructions pipeline_instructions(PipelineSchedule schedule, const PipelineShape& shape,
                                           int64_t micro_batches, int stage) {
  const int64_t groups = (micro_batches + shape.stages - 1) / shape.stages;
  const PipelineInstructions forward = passes(Kind::forward, shape, groups),
                             backward = passes(Kind::backward, shape, groups);
  const size_t total = forward.size();
  size_t warm_up = total;
  if (schedule == PipelineSchedule::one_forward_one_backward) {
    // One chunk: the first backward pass reaches a stage after the forward passes of all later stages.
    // Several: the micro-batch has to go around first, and every other slot is a backward pass of a later
    // stage.
    const int behind = shape.stages - 1 - stage;
    warm_up =
        static_cast<size_t>(shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * shape.stages);
    warm_up = std::min(warm_up, total);
  }
  PipelineInstructions list(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(warm_up));
  for (size_t i = 0; i < total; ++i) {
    if (warm_up + i < total) list.push_back(forward[warm_up + i]);
    list.push_back(backward[i]);
  }
  return existing(std::move(list), micro_batches);
}

PipelineInstructions forward_instructions(const PipelineShape& shape, int64_t micro_batches) {
  const int64_t groups = (micro_batches + shape.stages - 1) / shape.stages;
  return existing(passes(Kind::forward, shape, groups), micro_batches);
}

int64_t most_alive(const PipelineInstructions& instructions, int chunk) {
  int64_t alive = 0, most = 0;
  for (const PipelineInstruction& each : instructions) {
    if (each.chunk != chunk) continue;
    alive += each.kind == Kind::forward ? 1 : -1;
    most = std::max(most, alive);
  }
  return most;
}

std::vector<int64_t> split_layers(const std::string& how, int64_t layers, int pieces, double first_cost,
                                  double last_cost) {
  check_input(
      layers >= pieces,
      "model.num_layers = {} cannot fill {} pieces (parallel.pipeline times parallel.virtual_pipeline)",
      layers, pieces);
  if (how != "even" && how != "cost") {
    const std::vector<int64_t> list = parse_list(how);
    int64_t sum = 0;
    for (const int64_t number : list) sum += number;
    check_input(list.size() == static_cast<size_t>(pieces) && sum == layers,
                "parallel.layer_split = \"{}\" has {} pieces and {} layers; the run has {} pieces "
                "(parallel.pipeline times parallel.virtual_pipeline) and {} layers",
                how, list.size(), sum, pieces, layers);
    return list;
  }
  // Layers are alike, so giving each to the cheapest piece so far makes the costliest as cheap as can be.
  std::vector<double> cost(static_cast<size_t>(pieces), 1.0);
  if (how == "cost") {
    cost.front() += first_cost;
    cost.back() += last_cost;
  }
  std::vector<int64_t> split(static_cast<size_t>(pieces), 1);
  for (int64_t layer = pieces; layer < layers; ++layer) {
    const auto cheapest = std::min_element(cost.begin(), cost.end());
    *cheapest += 1.0;
    ++split[static_cast<size_t>(cheapest - cost.begin())];
  }
  return split;
}

}  // namespace megalith
