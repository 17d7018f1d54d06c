// Checkpoints of a training run: master weights, moments, state, recipe and tokenizer.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "megalith/comm/parallel_groups.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/train/optimizer.h"
#include "megalith/train/training_state.h"

namespace megalith {

/// Writes `run`/checkpoints/step-N and removes those that keep_last and keep_every do not hold. Vocabulary
/// padding is not written. `other_files` (name to content) go with the model. Every rank writes a part of
/// what it stands for; all call this together.
void save_checkpoint(const std::filesystem::path& run, const Recipe& recipe,
                     const ParameterBuffers& parameters, const Optimizer& optimizer,
                     const TrainingState& state, const std::string& tokenizer_json,
                     const std::map<std::string, std::string>& other_files, ParallelGroups& groups);

/// Fills this rank's range of master weights and moments from a checkpoint of any layout; the caller
/// refreshes the compute copy. Throws InputError that names the file or tensor when one is missing, damaged
/// or of another shape.
TrainingState load_checkpoint(const CheckpointReader& reader, ParameterBuffers& parameters,
                              Optimizer& optimizer);

}  // namespace megalith
