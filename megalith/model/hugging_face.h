// config.json of Hugging Face directories, by the families of model/family.h.
#pragma once

#include <string>
#include <vector>

#include "megalith/model/family.h"
#include "megalith/model/special_tokens.h"

namespace megalith {

/// Reads a config.json. Refused (InputError naming file and field): unknown model types, missing fields, and
/// fields whose value would change the numbers in a way that is not supported.
ModelConfig config_from_hugging_face(const std::string& json, const std::string& where);

/// The family that a model is written as: that of its form if it holds the model, else the first that does.
/// Throws InputError saying what its own family cannot hold.
const Family& hugging_face_family(const ModelConfig& config);

/// The config.json of a model. Throws InputError like hugging_face_family().
std::string config_to_hugging_face(const ModelConfig& config, DType dtype, const SpecialTokenIds& ids);

/// The tensors of the family that hold a parameter, in the order of its rows.
std::vector<StoredTensor> hugging_face_tensors(const Family& family, const ModelConfig& config,
                                               const Parameter& parameter);

}  // namespace megalith
