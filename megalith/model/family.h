// Model families as transformers files hold them: for each one description of config.json's fields and one
// table of tensor names. A family is a row here, not a class.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "megalith/model/config_fields.h"
#include "megalith/model/stored_tensor.h"

namespace megalith {

struct Family {
  ModelForm form;
  /// "model_type" of config.json, and another name that it may have.
  std::string_view model_type, other_model_type;
  /// Of "architectures": the class that predicts tokens.
  std::string_view architecture;
  void (*describe)(ConfigFields& fields, ModelConfig& config);
  std::span<const NameRule> names;
  /// Models without a head lack this in front of names.
  std::string_view prefix;
  /// Query and key rows that rotate together are stored side by side.
  bool adjacent_pairs = false;
};

std::span<const Family> families();
const Family& family(ModelForm form);
/// Null when no family has that model_type.
const Family* find_family(std::string_view model_type);

/// Names of all families, for messages.
std::string family_names();

/// Whether a tensor can be left out: buffers that are computed, and heads for tasks that Megalith does not
/// have.
bool is_ignored_tensor(std::string_view name);

}  // namespace megalith
