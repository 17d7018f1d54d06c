// What one rank of a layout holds and does: arithmetic alone, so that plans and predictions need no ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/comm/communicator.h"
#include "megalith/comm/process_grid.h"
#include "megalith/model/transformer.h"
#include "megalith/parallel/pipeline_schedule.h"
#include "megalith/train/recipe.h"

namespace megalith {

/// Throws InputError, which says what would do, when `ranks` ranks cannot train the recipe's resolved model
/// in its layout.
void check_layout(const Recipe& recipe, int ranks);

/// The grid of the recipe's layout over `ranks` ranks.
ProcessGrid process_grid(const Recipe& recipe, int ranks);

PipelineShape pipeline_shape(const Recipe& recipe);

/// parallel.zero_stage, or 0 where there is nobody to share with and no disk to put weights on.
int64_t effective_zero_stage(const Recipe& recipe, const ProcessGrid& grid);

/// The pieces of layers of one pipeline stage, chunk by chunk. Throws InputError when parallel.layer_split
/// does not fit.
std::vector<ModelSlice> stage_slices(const Recipe& recipe, int stage);

/// Micro-batches of a step of `samples` samples, and which of them a place of the data axis computes.
int64_t count_micro_batches(const Recipe& recipe, int64_t samples);
PartRange own_micro_batches(const Recipe& recipe, int64_t samples, const ProcessGrid& grid,
                            const GridPlace& place);

/// Micro-batches of each chunk that are between their forward and backward passes at the same time, at most,
/// in a step of the full batch.
std::vector<int64_t> most_micro_batches_alive(const Recipe& recipe, const ProcessGrid& grid,
                                              const GridPlace& place);

/// Whether gradients of look-ups must add up apart from those of a tied output layer on the same rank: over
/// several micro-batches the sum of the two is to be the one that a pipeline takes, where two stages add up
/// each for itself.
bool separates_lookup_gradient(const Recipe& recipe, const ProcessGrid& grid, const GridPlace& place);

}  // namespace megalith
