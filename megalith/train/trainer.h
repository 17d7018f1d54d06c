// The trainer: a recipe in, a run directory out.
#pragma once

#include <filesystem>
#include <string>

#include "megalith/comm/communicator.h"
#include "megalith/train/recipe.h"

namespace megalith {

struct TrainOptions {
  std::filesystem::path output;
  /// "auto": go on from the newest checkpoint of `output`, or begin; "none": begin, and refuse a run that is
  /// there; else a checkpoint or run directory to begin from.
  std::string resume = "auto";
  /// Where to write a time line of the run (Chrome trace JSON); empty for none.
  std::filesystem::path trace;
};

struct TrainOutcome {
  int64_t steps = 0;
  double final_loss = 0;
  /// A signal ended the run before its length.
  bool interrupted = false;
};

/// Trains to the end of the recipe, or until SIGINT, SIGTERM or SIGUSR1; either way the last state is in a
/// checkpoint. Throws Error (or InputError before anything has started) otherwise; what was checkpointed
/// stays. All ranks call it with the same arguments; the first one writes log and display.
TrainOutcome train(Recipe recipe, const TrainOptions& options, Communicator& ranks);

/// On one rank.
TrainOutcome train(const Recipe& recipe, const TrainOptions& options);

}  // namespace megalith
