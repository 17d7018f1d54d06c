#include "megalith/model/rope_fields.h"

#include <algorithm>
#include <cmath>

namespace megalith {

namespace {

using Json = ConfigFields::Json;

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// YaRN's factor of the magnitude of queries and keys.
double yarn_magnitude(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

// The parameters of one kind of scaling, from the object `json` inside the config.
void read_scaling(const Json& json, const std::string& where, const RopeDefaults& defaults,
                  ModelConfig& config) {
  check_input(json.is_object(), "{} must be an object", where);
  ConfigFields fields = ConfigFields::reader(json, where);
  std::string type = "default";
  fields.optional<std::string>("type", type, "default");
  fields.optional("rope_type", type, type);
  fields.optional(defaults.base_key, config.rope_base, config.rope_base);
  if (defaults.base_key != std::string_view("rope_theta")) {
    fields.optional("rope_theta", config.rope_base, config.rope_base);
  }
  fields.optional("partial_rotary_factor", config.rope_fraction, config.rope_fraction);
  int64_t original = 0;
  fields.optional<int64_t>("original_max_position_embeddings", original, 0);
  if (original > 0) config.rope_original_positions = original;
  if (type == "default") {
    // It may keep the length of the training.
  } else if (type == "linear" || type == "dynamic") {
    config.rope_scaling = type == "linear" ? RopeScaling::linear : RopeScaling::dynamic;
    fields.required("factor", config.rope_factor);
  } else if (type == "llama3") {
    config.rope_scaling = RopeScaling::llama3;
    fields.required("factor", config.rope_factor);
    fields.required("low_freq_factor", config.rope_low_frequency_factor);
    fields.required("high_freq_factor", config.rope_high_frequency_factor);
    check_input(original > 0, "{}: \"original_max_position_embeddings\" is missing", where);
  } else if (type == "yarn") {
    config.rope_scaling = RopeScaling::yarn;
    fields.required("factor", config.rope_factor);
    fields.optional("beta_fast", config.rope_beta_fast, 32.0);
    fields.optional("beta_slow", config.rope_beta_slow, 1.0);
    fields.optional("attention_factor", config.rope_attention_factor, 0.0);
    double magnitude = 0, magnitude_all = 0;
    fields.optional("mscale", magnitude, 0.0);
    fields.optional("mscale_all_dim", magnitude_all, 0.0);
    if (config.rope_attention_factor == 0 && magnitude > 0 && magnitude_all > 0) {
      config.rope_attention_factor =
          yarn_magnitude(config.rope_factor, magnitude) / yarn_magnitude(config.rope_factor, magnitude_all);
    }
    fields.fixed("truncate", true);
  } else if (type == "longrope" || type == "su") {
    config.rope_scaling = RopeScaling::longrope;
    fields.required("short_factor", config.rope_short_factors);
    fields.required("long_factor", config.rope_long_factors);
    fields.optional("factor", config.rope_factor, 0.0);
    fields.optional("attention_factor", config.rope_attention_factor, 0.0);
    if (config.rope_factor == 0) {
      // transformers compares the contexts behind and before.
      config.rope_factor = config.rope_original_positions > 0
                               ? static_cast<double>(config.max_positions) /
                                     static_cast<double>(config.rope_original_positions)
                               : 1;
    }
  } else {
    fail_input(
        "{}: the rotary scaling \"{}\" is not supported; known are default, linear, dynamic, yarn, "
        "llama3 and longrope",
        where, type);
  }
  fields.refuse_unknown();
}

Json scaling_to_json(const ModelConfig& config) {
  Json json = {{"rope_type", kRopeScalingNames[static_cast<size_t>(config.rope_scaling)]},
               {"factor", config.rope_factor}};
  switch (config.rope_scaling) {
    case RopeScaling::none:
      return {};
    case RopeScaling::linear:
    case RopeScaling::dynamic:
      return json;
    case RopeScaling::llama3:
      json["low_freq_factor"] = config.rope_low_frequency_factor;
      json["high_freq_factor"] = config.rope_high_frequency_factor;
      break;
    case RopeScaling::yarn:
      json["beta_fast"] = config.rope_beta_fast;
      json["beta_slow"] = config.rope_beta_slow;
      break;
    case RopeScaling::longrope:
      json["short_factor"] = config.rope_short_factors;
      json["long_factor"] = config.rope_long_factors;
      break;
  }
  if (config.rope_attention_factor > 0) json["attention_factor"] = config.rope_attention_factor;
  json["original_max_position_embeddings"] = config.rope_original_positions;
  return json;
}

}  // namespace

void rope_fields(ConfigFields& fields, ModelConfig& config, const RopeDefaults& defaults) {
  if (fields.writing()) {
    fields.put(defaults.base_key, config.rope_base);
    if (defaults.partial) {
      fields.put(defaults.fraction_key, config.rope_fraction);
    }
    fields.put("rope_scaling", scaling_to_json(config));
    return;
  }
  fields.optional(defaults.base_key, config.rope_base, defaults.base);
  fields.optional(defaults.fraction_key, config.rope_fraction, defaults.fraction);
  // Some files give the length of the training beside the scaling.
  fields.optional<int64_t>("original_max_position_embeddings", config.rope_original_positions, 0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const Json* json = fields.find(key)) {
      read_scaling(*json, fields.where() + ": " + key, defaults, config);
    }
  }
  check_input(defaults.partial || config.rope_fraction == 1,
              "{}: \"partial_rotary_factor\" = {}; heads of this family rotate whole", fields.where(),
              config.rope_fraction);
}

void rope_fields_by_layer(ConfigFields& fields, ModelConfig& config) {
  if (fields.writing()) {
    fields.put("rope_theta", config.rope_base);
    fields.put("rope_local_base_freq", config.rope_window_base);
    fields.put("rope_scaling", scaling_to_json(config));
    return;
  }
  config.rope_base = 1e6;
  config.rope_window_base = 1e4;
  const Json* parameters = fields.find("rope_parameters");
  if (parameters == nullptr || !parameters->contains(kFull)) {
    fields.optional("rope_local_base_freq", config.rope_window_base, 1e4);
    rope_fields(fields, config, {.base = 1e6});
    return;
  }
  const std::string where = fields.where() + ": rope_parameters";
  ConfigFields by_layer = ConfigFields::reader(*parameters, where);
  read_scaling(by_layer.get<Json>(kFull), where + ": " + kFull, {}, config);
  by_layer.find(kFull);
  if (const Json* sliding = by_layer.find(kSliding)) {
    ModelConfig windowed;
    read_scaling(*sliding, where + ": " + kSliding, {}, windowed);
    check_input(windowed.rope_scaling == RopeScaling::none,
                "{}: layers with a window can only rotate without scaling", where);
    config.rope_window_base = windowed.rope_base;
  }
  by_layer.refuse_unknown();
  fields.ignore({"rope_theta", "rope_scaling", "rope_local_base_freq"});
}

void layer_type_fields(ConfigFields& fields, ModelConfig& config) {
  if (fields.writing()) {
    std::vector<std::string> types;
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      types.emplace_back(config.layer_has_window(layer) ? kSliding : kFull);
    }
    fields.put("layer_types", types);
    return;
  }
  if (fields.find("layer_types") == nullptr) return;
  const auto types = fields.get<std::vector<std::string>>("layer_types");
  check_input(static_cast<int64_t>(types.size()) == config.num_layers,
              "{}: \"layer_types\" has {} entries for {} layers", fields.where(), types.size(),
              config.num_layers);
  for (const std::string& type : types) {
    check_input(type == kFull || type == kSliding, "{}: \"layer_types\" holds \"{}\"; known are {} and {}",
                fields.where(), type, kFull, kSliding);
  }
  if (std::find(types.begin(), types.end(), kSliding) == types.end()) {
    config.window = 0;
    config.window_period = config.window_first_layer = 0;
    return;
  }
  check_input(config.window > 0,
              "{}: \"layer_types\" names layers with a window, but \"sliding_window\" is null",
              fields.where());
  const auto fits = [&](int64_t period, int64_t first) {
    ModelConfig tried = config;
    tried.window_period = period;
    tried.window_first_layer = first;
    for (size_t layer = 0; layer < types.size(); ++layer) {
      if (tried.layer_has_window(static_cast<int64_t>(layer)) != (types[layer] == kSliding)) return false;
    }
    config.window_period = period;
    config.window_first_layer = first;
    return true;
  };
  const int64_t first_sliding = std::find(types.begin(), types.end(), kSliding) - types.begin();
  // The family's own pattern first: short models show only the beginning of one.
  if (fits(config.window_period, config.window_first_layer) || fits(0, first_sliding)) return;
  for (int64_t period = 2; period <= config.num_layers; ++period) {
    if (fits(period, 0)) return;
  }
  fail_input("{}: \"layer_types\" is neither periodic nor full layers followed by ones with a window",
             fields.where());
}

}  // namespace megalith
