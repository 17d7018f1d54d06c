// What a recipe means for a run: how many steps of which batches, and what it takes.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/train/recipe.h"
#include "megalith/train/schedule.h"
#include "megalith/train/training_state.h"

namespace megalith {

/// Takes the vocabulary from the tokenizer when the recipe leaves it open, and resolves the model. Returns
/// the tokenizer's text, empty without one. Throws InputError when the two do not fit.
std::string resolve_vocabulary(Recipe& recipe);

/// Samples of the step that begins after `consumed_samples`. A run counted in samples ends exactly there,
/// with a smaller last batch.
int64_t step_samples(const Recipe& recipe, const BatchRamp& ramp, int64_t consumed_samples);

/// Whether the run has reached its length.
bool is_done(const Recipe& recipe, int64_t steps, int64_t consumed_samples);

/// Position of the schedule for an update over `samples` samples, in the unit of the run.
double schedule_position(const Recipe& recipe, const TrainingState& state, int64_t samples);

/// Total number of steps of a run, without running it; a batch ramp is walked through.
int64_t count_steps(const Recipe& recipe);

}  // namespace megalith
