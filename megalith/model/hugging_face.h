// Hugging Face directories of the GPT-2 and LLaMA forms: config.json and tensor names, as transformers
// defines them.
#pragma once

#include <string>
#include <vector>

#include "megalith/model/model_config.h"
#include "megalith/model/special_tokens.h"

namespace megalith {

/// Reads a config.json. Refused (InputError naming file and field): unknown model types, missing fields, and
/// fields whose value would change the numbers in a way that is not supported.
ModelConfig config_from_hugging_face(const std::string& json, const std::string& where);

/// The config.json of a model. Throws InputError naming the first choice that neither form of transformers
/// can express.
std::string config_to_hugging_face(const ModelConfig& config, DType dtype, const SpecialTokenIds& ids);

/// The Hugging Face tensor that holds some rows of a parameter of ours: rows of equal order, one after the
/// other.
struct HuggingFaceTensor {
  std::string name;
  int64_t rows = 0;
  /// Stored as [columns, rows] (GPT-2's Conv1D).
  bool transposed = false;
};

/// The tensors that make up a parameter, in the order of its rows.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config, const std::string& parameter,
                                                    int64_t rows);

/// Which of the two a config would be written as.
ModelForm hugging_face_form(const ModelConfig& config);

}  // namespace megalith
