#include "megalith/model/gguf_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "megalith/base/error.h"

namespace megalith {

namespace {

// Tensors that hold frequencies of the rotary embedding, not weights.
constexpr std::string_view kConfigTensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                               "rope_factors_long.weight"};

}  // namespace

template <class T>
std::optional<T> GgufFields::find(const char* key) {
  known_.insert(key);
  const auto found = entries_.keys.find(key);
  if (found == entries_.keys.end()) return std::nullopt;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  if constexpr (std::is_same_v<T, double>) {
    if (const int64_t* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  }
  fail_input("{}: \"{}.{}\" has the wrong type", where_, entries_.architecture, key);
}

void GgufFields::optional(const char* key, int64_t& value, int64_t absent) {
  if (writing_) {
    if (value != absent) entries_.keys[key] = value;
    return;
  }
  value = find<int64_t>(key).value_or(absent);
  check_input(value >= 0 && value < (int64_t{1} << 31), "{}: \"{}.{}\" = {} is out of range", where_,
              entries_.architecture, key, value);
}

void GgufFields::required(const char* key, int64_t& value) {
  if (!writing_) {
    check_input(entries_.keys.contains(key), "{}: \"{}.{}\" is missing", where_, entries_.architecture, key);
  }
  optional(key, value, -1);
  check_input(value > 0, "{}: \"{}.{}\" = {} is out of range", where_, entries_.architecture, key, value);
}

void GgufFields::optional(const char* key, double& value, double absent) {
  if (writing_) {
    if (value != absent) entries_.keys[key] = value;
    return;
  }
  value = find<double>(key).value_or(absent);
  check_input(std::isfinite(value), "{}: \"{}.{}\" is not finite", where_, entries_.architecture, key);
}

void GgufFields::required(const char* key, double& value) {
  if (!writing_) {
    check_input(entries_.keys.contains(key), "{}: \"{}.{}\" is missing", where_, entries_.architecture, key);
  }
  optional(key, value, std::numeric_limits<double>::quiet_NaN());
}

void GgufFields::optional(const char* key, bool& value, bool absent) {
  if (writing_) {
    if (value != absent) entries_.keys[key] = value;
  } else {
    value = find<bool>(key).value_or(absent);
  }
}

void GgufFields::optional(const char* key, std::string& value, const std::string& absent) {
  if (writing_) {
    if (value != absent) entries_.keys[key] = value;
  } else {
    value = find<std::string>(key).value_or(absent);
  }
}

void GgufFields::numbers(const char* tensor, std::vector<double>& values) {
  if (writing_) {
    if (!values.empty()) entries_.tensors[tensor] = std::vector<float>(values.begin(), values.end());
    return;
  }
  known_.insert(tensor);
  const auto found = entries_.tensors.find(tensor);
  if (found == entries_.tensors.end()) {
    values.clear();
    return;
  }
  values.assign(found->second.begin(), found->second.end());
  for (const double value : values) {
    check_input(std::isfinite(value) && value > 0, "{}: tensor {} holds {}, which is no factor", where_,
                tensor, value);
  }
}

void GgufFields::refuse_unknown() const {
  for (const auto& [key, value] : entries_.keys) {
    check_input(known_.contains(key), "{}: \"{}.{}\" is not understood and could change the numbers", where_,
                entries_.architecture, key);
  }
  for (const auto& [name, values] : entries_.tensors) {
    check_input(known_.contains(name), "{}: tensor {} is not understood and could change the numbers", where_,
                name);
  }
}

bool is_config_tensor(std::string_view name) {
  return std::find(std::begin(kConfigTensors), std::end(kConfigTensors), name) != std::end(kConfigTensors);
}

GgufConfigEntries read_config_entries(const GgufFile& file) {
  const std::string path = file.path().string();
  GgufConfigEntries entries;
  const auto architecture = file.text("general.architecture");
  check_input(architecture.has_value(), "{}: \"general.architecture\" is missing", path);
  entries.architecture = *architecture;
  const std::string prefix = entries.architecture + ".";
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(prefix)) continue;
    const std::string inner(key.substr(prefix.size()));
    if (const auto* whole = std::get_if<uint64_t>(&value.value)) {
      check_input(*whole < (uint64_t{1} << 62), "{}: \"{}\" = {} is out of range", path, key, *whole);
      entries.keys[inner] = static_cast<int64_t>(*whole);
    } else if (const auto* number = std::get_if<int64_t>(&value.value)) {
      entries.keys[inner] = *number;
    } else if (const auto* real = std::get_if<double>(&value.value)) {
      entries.keys[inner] = *real;
    } else if (const auto* flag = std::get_if<bool>(&value.value)) {
      entries.keys[inner] = *flag;
    } else if (const auto* text = std::get_if<std::string_view>(&value.value)) {
      entries.keys[inner] = std::string(*text);
    } else {
      fail_input("{}: \"{}\" = {}: values by layer are not supported", path, key, describe(value));
    }
  }
  for (const std::string_view name : kConfigTensors) {
    const GgufTensor* tensor = file.find_tensor(name);
    if (tensor == nullptr) continue;
    check_input(tensor->shape.size() == 1 && tensor->type == GgufType::f32 && tensor->elements() < (1 << 20),
                "{}: tensor {} must be a vector of F32", path, name);
    std::vector<float> values(static_cast<size_t>(tensor->elements()));
    dequantize(tensor->type, file.bytes(*tensor).data(), tensor->elements(), values.data());
    entries.tensors[std::string(name)] = std::move(values);
  }
  return entries;
}

void write_config_keys(const GgufConfigEntries& entries, GgufWriter& writer) {
  writer.add("general.architecture", std::string_view(entries.architecture));
  for (const auto& [key, value] : entries.keys) {
    const std::string full = entries.architecture + "." + key;
    if (const auto* whole = std::get_if<int64_t>(&value)) {
      writer.add(full, static_cast<uint32_t>(*whole));
    } else if (const auto* real = std::get_if<double>(&value)) {
      writer.add(full, static_cast<float>(*real));
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      writer.add(full, *flag);
    } else {
      writer.add(full, std::string_view(std::get<std::string>(value)));
    }
  }
}

}  // namespace megalith
