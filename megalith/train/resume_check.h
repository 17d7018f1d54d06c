// What a checkpoint and a recipe must have in common for a run to go on.
#pragma once

#include <string>

#include "megalith/formats/checkpoint_directory.h"
#include "megalith/model/model_config.h"

namespace megalith {

/// Throws InputError naming the first line of [model] that differs.
void check_same_model(const CheckpointReader& checkpoint, const ModelConfig& wanted);

/// Throws InputError when two tokenizer.json texts, of `checkpoint` and of the recipe, are different
/// tokenizers: token ids would change their meaning. Either may be empty.
void check_same_tokenizer(const std::string& stored, const std::string& wanted,
                          const std::string& checkpoint);

}  // namespace megalith
