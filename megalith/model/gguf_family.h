// Architectures of GGUF files, as llama.cpp defines them: for each one description of its keys and one table
// of tensor names.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "megalith/model/gguf_fields.h"
#include "megalith/model/stored_tensor.h"

namespace megalith {

/// Which biases an architecture has: where they are optional the tensors tell.
enum class GgufBiases { none, query_key_value, optional, all };

struct GgufArchitecture {
  std::string_view name;
  /// What a file of this architecture is read as.
  ModelForm form;
  void (*describe)(GgufFields& fields, ModelConfig& config);
  std::span<const NameRule> names;
  GgufBiases biases = GgufBiases::none;
  bool adjacent_pairs = false;
  /// The output projection is always the token embedding.
  bool always_tied = false;
};

/// Null for a name that is not known.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
/// The architecture that holds a model of this form; null when llama.cpp has none.
const GgufArchitecture* gguf_architecture_of(ModelForm form);
std::span<const GgufArchitecture> gguf_architectures();
std::string gguf_architecture_names();

}  // namespace megalith
