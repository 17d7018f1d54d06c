#include "megalith/model/config_fields.h"

namespace megalith {

namespace {

Activation activation_from(const std::string& name, bool gated, const std::string& where) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return gated ? Activation::geglu_tanh : Activation::gelu_tanh;
  }
  if (name == "gelu") return gated ? Activation::geglu_erf : Activation::gelu_erf;
  if (name == "silu" || name == "swish") return gated ? Activation::swiglu : Activation::silu;
  if (name == "relu" && !gated) return Activation::relu;
  fail_input("{}: the activation \"{}\" is not supported", where, name);
}

std::string activation_name(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return "gelu_pytorch_tanh";
    case Activation::gelu_erf:
    case Activation::geglu_erf:
      return "gelu";
    case Activation::silu:
    case Activation::swiglu:
      return "silu";
    case Activation::relu:
      break;
  }
  return "relu";
}

}  // namespace

void ConfigFields::activation(const char* key, Activation& value, bool gated) {
  std::string name = activation_name(value);
  required(key, name);
  if (!writing_) value = activation_from(name, gated, where_);
}

void ConfigFields::bias(const char* key, const ModelConfig& config, BiasChoice& choice, bool absent) {
  bool value = config.has_bias(choice);
  optional(key, value, absent);
  choice = value ? BiasChoice::yes : BiasChoice::no;
}

const ConfigFields::Json* ConfigFields::find(const char* key) {
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigFields::refuse_unknown() const {
  for (const auto& [key, value] : json_.items()) {
    if (known_.contains(key)) continue;
    fail_input("{}: \"{}\" = {} is not understood and could change the numbers", where_, key, value.dump());
  }
}

}  // namespace megalith
