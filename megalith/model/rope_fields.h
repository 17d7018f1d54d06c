// The rotary embedding and the windows of layers in a config.json, in the forms of transformers 4 and 5.
#pragma once

#include "megalith/model/config_fields.h"

namespace megalith {

/// What a family says about its rotary embedding where the file says nothing.
struct RopeDefaults {
  double base = 10000;
  double fraction = 1;
  /// Whether the family can rotate a part of each head.
  bool partial = false;
  const char* base_key = "rope_theta";
  const char* fraction_key = "partial_rotary_factor";
};

/// rope_parameters (transformers 5), or rope_theta and rope_scaling (4), which are also what is written.
void rope_fields(ConfigFields& fields, ModelConfig& config, const RopeDefaults& defaults = {});

/// Gemma 3: layers with a window have a base of their own.
void rope_fields_by_layer(ConfigFields& fields, ModelConfig& config);

/// layer_types, the list of what each layer sees. Where it is not there the window's period and first layer
/// stay as they are. Throws InputError for a list that they cannot say.
void layer_type_fields(ConfigFields& fields, ModelConfig& config);

}  // namespace megalith
