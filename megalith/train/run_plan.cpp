#include "megalith/train/run_plan.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/tokenizer_files.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

std::string resolve_vocabulary(Recipe& recipe) {
  std::string tokenizer_json;
  if (!recipe.data.tokenizer.empty()) {
    const Tokenizer tokenizer = open_tokenizer(recipe.data.tokenizer);
    tokenizer_json = tokenizer.to_json();
    const int64_t size = tokenizer.vocab_size();
    if (recipe.model.vocab_size == 0) recipe.model.vocab_size = size;
    check_input(recipe.model.vocab_size >= size,
                "model.vocab_size = {} is smaller than the tokenizer's {} ({})", recipe.model.vocab_size,
                size, recipe.data.tokenizer);
  }
  recipe.model.resolve();
  return tokenizer_json;
}

int64_t step_samples(const Recipe& recipe, const BatchRamp& ramp, int64_t consumed_samples) {
  const int64_t batch = ramp.at(consumed_samples);
  // A run counted in samples ends exactly there, with a smaller last batch.
  if (recipe.unit() == Unit::samples) return std::min(batch, recipe.train.samples - consumed_samples);
  return batch;
}

bool is_done(const Recipe& recipe, int64_t steps, int64_t consumed_samples) {
  switch (recipe.unit()) {
    case Unit::steps:
      return steps >= recipe.train.steps;
    case Unit::samples:
      return consumed_samples >= recipe.train.samples;
    case Unit::tokens:
      return consumed_samples * recipe.data.sequence_length >= recipe.train.tokens;
  }
  return true;
}

double schedule_position(const Recipe& recipe, const TrainingState& state, int64_t samples) {
  switch (recipe.unit()) {
    case Unit::samples:
      return static_cast<double>(state.scheduled_samples + samples);
    case Unit::tokens:
      return static_cast<double>((state.scheduled_samples + samples) * recipe.data.sequence_length);
    case Unit::steps:
      break;
  }
  return static_cast<double>(state.updates + 1);
}

int64_t count_steps(const Recipe& recipe) {
  if (recipe.unit() == Unit::steps) return recipe.train.steps;
  const BatchRamp ramp(recipe);
  int64_t steps = 0, consumed = 0;
  while (!is_done(recipe, steps, consumed)) {
    const int64_t batch = step_samples(recipe, ramp, consumed);
    // Once the batch is full it stays so, and the rest is a division.
    if (batch == recipe.train.global_batch) {
      const int64_t left = recipe.unit() == Unit::samples
                               ? recipe.train.samples - consumed
                               : (recipe.train.tokens - consumed * recipe.data.sequence_length +
                                  recipe.data.sequence_length - 1) /
                                     recipe.data.sequence_length;
      return steps + (left + batch - 1) / batch;
    }
    consumed += batch;
    ++steps;
  }
  return steps;
}

}  // namespace megalith
