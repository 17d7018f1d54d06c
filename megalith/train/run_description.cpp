#include "megalith/train/run_description.h"

#include <algorithm>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/model/counts.h"
#include "megalith/train/message_plan.h"
#include "megalith/train/progress_display.h"
#include "megalith/train/run_plan.h"
#include "megalith/train/stage_layout.h"
#include "megalith/train/training_memory.h"

namespace megalith {

namespace {

// Bytes with three digits: "83.9 MB", "3.78 GB".
std::string three_digits(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 999.5 && unit < 5; ++unit) value /= 1000;
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string layers_of(const std::vector<ModelSlice>& slices) {
  std::string text;
  for (const ModelSlice& slice : slices) {
    if (!text.empty()) text += ", ";
    if (slice.has_embedding) text += "embedding, ";
    text += slice.layers() == 1 ? std::to_string(slice.first_layer)
                                : fmt::format("{}-{}", slice.first_layer, slice.end_layer - 1);
    if (slice.has_head) text += ", head";
  }
  return text;
}

// Elements of one rank, vocabulary padding included.
int64_t parameters_of(const Recipe& recipe, const ProcessGrid& grid, const GridPlace& place) {
  const TensorParallel tensor =
      TensorParallel::described(place.tensor, grid.tensor(), recipe.parallel.sequence_parallel);
  int64_t elements = 0;
  for (const ModelSlice& slice : stage_slices(recipe, place.pipeline)) {
    Transformer model(recipe.model, tensor, slice);
    model.walk([&](Parameter& parameter) { elements += parameter.allocated_shape().elements(); });
  }
  return elements;
}

uint64_t sum_of(const std::vector<MemoryLine>& memory) {
  uint64_t total = 0;
  for (const MemoryLine& line : memory) total += line.in_memory() ? line.predicted : 0;
  return total;
}

class Description {
 public:
  Description(const Recipe& recipe, const ProcessGrid& grid) : recipe_(recipe), grid_(grid) {}

  std::string text() {
    model_and_batch();
    if (grid_.ranks() > 1) layout();
    memory();
    if (grid_.ranks() > 1) messages();
    return out_;
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }

  void model_and_batch() {
    line("parameters        {}", format_count(count_parameters(recipe_.model)));
    for (const PartCount& part : count_parts(recipe_.model)) {
      line("  {:<22}{}", part.part, format_count(part.parameters));
    }
    line("batch             {} samples of {} tokens = {} micro-batches of {}", recipe_.train.global_batch,
         recipe_.data.sequence_length, count_micro_batches(recipe_, recipe_.train.global_batch),
         recipe_.train.micro_batch);
    line("steps             {}", format_count(count_steps(recipe_)));
    const double flops = 3 * forward_flops_per_token(recipe_.model, recipe_.data.sequence_length);
    line("FLOPs a token     {:.3e}", flops);
    line("FLOPs a step      {:.3e}",
         flops * static_cast<double>(recipe_.train.global_batch * recipe_.data.sequence_length));
  }

  void layout() {
    line("grid              {} ranks = {} pipeline stages x {} data parallel x {} tensor parallel{}",
         format_count(grid_.ranks()), grid_.pipeline(), grid_.data(), grid_.tensor(),
         recipe_.parallel.sequence_parallel ? ", sequence parallel" : "");
    const auto share = [&](int data) {
      return own_micro_batches(recipe_, recipe_.train.global_batch, grid_, {0, data, 0}).size();
    };
    const int64_t most = share(0), least = share(grid_.data() - 1);
    line("micro-batches     {} a step on each of the first data-parallel ranks, {} on the last", most, least);
    if (grid_.pipeline() > 1) {
      // The share of a step's work for which a stage waits (Narayanan et al. 2021).
      line("bubble            {:.1f} % of the ideal time, (stages - 1) / (micro-batches x pieces a stage)",
           100.0 * (grid_.pipeline() - 1) / static_cast<double>(most * recipe_.parallel.virtual_pipeline));
    }
    line("stages            (parameters and memory are those of one rank)");
    line("  {:>5}  {:<13} {:<24} {:>15} {:>10}", "stage", "ranks", "layers", "parameters", "memory");
    for (int stage = 0; stage < grid_.pipeline(); ++stage) {
      const GridPlace place{stage, 0, 0};
      const uint64_t bytes = sum_of(predict_memory(recipe_, grid_, place));
      if (bytes > most_bytes_) {
        most_bytes_ = bytes;
        fullest_ = stage;
      }
      line("  {:>5}  {:<13} {:<24} {:>15} {:>10}", stage,
           fmt::format("{}-{}", grid_.rank(place), grid_.rank({stage, grid_.data() - 1, grid_.tensor() - 1})),
           layers_of(stage_slices(recipe_, stage)), format_count(parameters_of(recipe_, grid_, place)),
           three_digits(bytes));
    }
  }

  void memory() {
    const std::vector<MemoryLine> memory = predict_memory(recipe_, grid_, {fullest_, 0, 0});
    if (grid_.pipeline() > 1) {
      line("predicted memory of a rank of stage {}, which holds most", fullest_);
    } else {
      line("{}", grid_.ranks() > 1 ? "predicted memory of a rank" : "predicted memory");
    }
    for (const MemoryLine& kind : memory) line("  {:<25}{}", kind.name(), format_bytes(kind.predicted));
    line("  {:<25}{} of {} in this machine", "sum", format_bytes(sum_of(memory)),
         format_bytes(total_memory_bytes()));
  }

  // Of a stage in the middle, which is what most are.
  void messages() {
    const GridPlace place{grid_.pipeline() / 2, 0, 0};
    if (grid_.pipeline() > 1) {
      line("messages of a rank of stage {} in a step", place.pipeline);
    } else {
      line("messages of a rank in a step");
    }
    for (const MessageLine& message : predict_messages(recipe_, grid_, place)) {
      const char* axis = message.axis == GridAxis::tensor     ? "tensor"
                         : message.axis == GridAxis::pipeline ? "pipeline"
                                                              : "data";
      line("  {:<9} {:<42} {:>7} x {:>8} = {:>8}", axis, message.what, format_count(message.calls),
           three_digits(message.largest), three_digits(message.bytes));
    }
    const uint64_t parameters = static_cast<uint64_t>(parameters_of(recipe_, grid_, place));
    if (grid_.data() > 1) {
      line("  (a rank's {} parameters are {} in 16 bits)", format_count(static_cast<int64_t>(parameters)),
           three_digits(2 * parameters));
    }
  }

  const Recipe& recipe_;
  const ProcessGrid& grid_;
  std::string out_;
  uint64_t most_bytes_ = 0;
  int fullest_ = 0;
};

}  // namespace

std::string describe_run(Recipe recipe, int ranks) {
  resolve_vocabulary(recipe);
  if (ranks == 0) ranks = static_cast<int>(recipe.parallel.pipeline * recipe.parallel.tensor);
  check_layout(recipe, ranks);
  return Description(recipe, process_grid(recipe, ranks)).text();
}

}  // namespace megalith
