// Pipeline schedules as data: what each stage does in which order, and which layers it holds.
//
// The layers are cut into stages x chunks pieces. Piece g = chunk x stages + stage is chunk `chunk` of stage
// `stage`, so with one chunk a stage holds neighbouring layers, and with several (virtual pipeline) a
// micro-batch goes around the stages several times. A forward instruction of piece g needs the output of
// piece g - 1, a backward one the gradient from piece g + 1; the last piece begins the backward pass itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// gpipe: all forward passes, then all backward passes. one_forward_one_backward (1F1B): a stage begins
/// backward passes as soon as it can, so that at most stages - stage micro-batches are alive on it; with
/// several chunks it is the interleaved form of it (Narayanan et al. 2021), whose bubble is smaller by the
/// number of chunks.
enum class PipelineSchedule { gpipe, one_forward_one_backward };
inline constexpr std::array<std::string_view, 2> kPipelineScheduleNames = {"gpipe", "1f1b"};

struct PipelineInstruction {
  enum class Kind : uint8_t { forward, backward } kind;
  /// Of this stage.
  int chunk;
  int64_t micro_batch;
  bool operator==(const PipelineInstruction&) const = default;
};
using PipelineInstructions = std::vector<PipelineInstruction>;

struct PipelineShape {
  int stages = 1;
  /// Pieces of layers a stage.
  int chunks = 1;
  int pieces() const { return stages * chunks; }
  int piece(int stage, int chunk) const { return chunk * stages + stage; }
  int stage_of(int piece) const { return piece % stages; }
  int chunk_of(int piece) const { return piece / stages; }
};

/// What `stage` does in a step of `micro_batches`, which may be any number, 0 included. On every stage each
/// chunk runs its forward passes and its backward passes in the order of micro-batches.
PipelineInstructions pipeline_instructions(PipelineSchedule schedule, const PipelineShape& shape,
                                           int64_t micro_batches, int stage);
/// The forward passes alone, for evaluation: the same on every stage.
PipelineInstructions forward_instructions(const PipelineShape& shape, int64_t micro_batches);

/// Most micro-batches of a chunk that have done their forward but not their backward pass.
int64_t most_alive(const PipelineInstructions& instructions, int chunk);

/// How layers are cut into pieces: "even", "cost" (the embedding and the head count as `first_cost` and
/// `last_cost` layers), or numbers of layers by piece ("3,4,5"). Returns the number of each piece, none of
/// them 0. Throws InputError when the layers do not suffice or a list does not fit.
std::vector<int64_t> split_layers(const std::string& how, int64_t layers, int pieces, double first_cost,
                                  double last_cost);

}  // namespace megalith
