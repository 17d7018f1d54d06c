// The fields of a Hugging Face config.json, read and written by one description: a family says once which
// field is which choice of ModelConfig.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>

#include "megalith/base/error.h"
#include "megalith/model/model_config.h"

namespace megalith {

class ConfigFields {
 public:
  using Json = nlohmann::ordered_json;

  /// Reads the object `json`; `where` stands for it in errors.
  static ConfigFields reader(Json json, std::string where) {
    return {std::move(json), std::move(where), false};
  }
  static ConfigFields writer() { return {Json::object(), {}, true}; }

  bool writing() const { return writing_; }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

  /// A field that must be there, under one of two names.
  template <class T>
  void required(const char* key, T& value, const char* other_key = nullptr) {
    if (writing_) {
      json_[key] = value;
      return;
    }
    if (find(key) == nullptr && other_key != nullptr && find(other_key) != nullptr) key = other_key;
    check_input(find(key) != nullptr, "{}: \"{}\" is missing", where_, key);
    value = get<T>(key);
  }
  /// A field that stands for `absent` when it is not there or null.
  template <class T>
  void optional(const char* key, T& value, T absent) {
    if (writing_) {
      json_[key] = value;
    } else {
      value = find(key) == nullptr ? absent : get<T>(key);
    }
  }
  /// A number that is null for `none`.
  template <class T>
  void nullable(const char* key, T& value, T none) {
    if (writing_) {
      json_[key] = value == none ? Json() : Json(value);
    } else {
      value = find(key) == nullptr ? none : get<T>(key);
    }
  }
  /// A field that has this value when it is there.
  template <class T>
  void fixed(const char* key, T value) {
    if (writing_) {
      json_[key] = value;
      return;
    }
    if (find(key) == nullptr || get<T>(key) == value) return;
    fail_input("{}: \"{}\" is {}; only {} is supported", where_, key, json_.at(key).dump(),
               Json(value).dump());
  }
  /// The activation of the feed-forward network, by transformers' names.
  void activation(const char* key, Activation& value, bool gated);
  /// Biases of a group of layers, true or false.
  void bias(const char* key, const ModelConfig& config, BiasChoice& choice, bool absent);

  /// Reading: the value, or null when it is not there or null; the field counts as understood.
  const Json* find(const char* key);
  template <class T>
  T get(const char* key) const {
    try {
      T value = json_.at(key).get<T>();
      // Sizes are multiplied before they are checked one by one.
      if constexpr (std::is_same_v<T, int64_t>) {
        constexpr int64_t kMost = int64_t{1} << 40;
        check_input(value >= -kMost && value <= kMost, "{}: \"{}\" = {} is absurd", where_, key, value);
      }
      return value;
    } catch (const Json::exception&) {
      fail_input("{}: \"{}\" has the wrong type: {}", where_, key, json_.at(key).dump());
    }
  }
  /// Writing.
  template <class T>
  void put(const char* key, const T& value) {
    json_[key] = value;
  }
  /// Fields that no number depends on.
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }
  /// Reading: throws InputError for a field that nothing has asked for.
  void refuse_unknown() const;

 private:
  ConfigFields(Json json, std::string where, bool writing)
      : json_(std::move(json)), where_(std::move(where)), writing_(writing) {}

  Json json_;
  std::string where_;
  bool writing_;
  std::set<std::string> known_;
};

}  // namespace megalith
