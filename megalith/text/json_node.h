// An element of a JSON document with its place in it, for error messages.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/error.h"

namespace megalith {

// Ids index tables, so a damaged file must not ask for gigabytes.
inline constexpr int64_t kMaximumTokenId = (1 << 24) - 1;

class JsonNode {
 public:
  JsonNode(simdjson::dom::element value, std::string path) : value_(value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  [[noreturn]] void wrong(std::string_view problem) const { fail_input("{}: {}", path_, problem); }

  // The member, or nothing when it is absent or null.
  std::optional<JsonNode> member(std::string_view key) const {
    simdjson::dom::element found;
    if (as_object().at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
    return JsonNode(found, path_ + "." + std::string(key));
  }
  JsonNode required(std::string_view key) const {
    auto found = member(key);
    if (!found) fail_input("{}.{}: missing", path_, key);
    return *found;
  }
  simdjson::dom::object as_object() const {
    simdjson::dom::object result;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected an object");
    return result;
  }
  std::vector<JsonNode> as_array() const {
    std::vector<JsonNode> result;
    for (const simdjson::dom::element item : raw_array())
      result.emplace_back(item, fmt::format("{}[{}]", path_, result.size()));
    return result;
  }
  simdjson::dom::array raw_array() const {
    simdjson::dom::array items;
    if (value_.get(items) != simdjson::SUCCESS) wrong("expected an array");
    return items;
  }
  bool is_object() const { return value_.is_object(); }
  bool is_text() const { return value_.is_string(); }
  std::string_view text() const {
    std::string_view result;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected a string");
    return result;
  }
  std::string_view text(std::string_view key, std::string_view absent) const {
    const auto found = member(key);
    return found ? found->text() : absent;
  }
  bool boolean() const {
    bool result = false;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected true or false");
    return result;
  }
  bool boolean(std::string_view key, bool absent) const {
    const auto found = member(key);
    return found ? found->boolean() : absent;
  }
  int64_t integer(int64_t least, int64_t most) const {
    int64_t result = 0;
    if (value_.get(result) != simdjson::SUCCESS || result < least || result > most)
      wrong(fmt::format("expected a whole number from {} to {}", least, most));
    return result;
  }
  double number() const {
    double result = 0;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected a number");
    return result;
  }
  int32_t id() const {
    int64_t result = 0;
    if (value_.get(result) != simdjson::SUCCESS || result < 0 || result > kMaximumTokenId)
      wrong(fmt::format("expected a token id from 0 to {}", kMaximumTokenId));
    return static_cast<int32_t>(result);
  }
  void only_keys(std::initializer_list<std::string_view> known) const {
    for (const auto field : as_object()) {
      if (std::find(known.begin(), known.end(), field.key) == known.end())
        fail_input("{}.{}: not supported", path_, field.key);
    }
  }

 private:
  simdjson::dom::element value_;
  std::string path_;
};

/// Reads the steps around the model. Throws InputError naming the element.
struct TokenizerDescription;
void read_normalizer(const JsonNode& node, TokenizerDescription& out);
void read_pre_tokenizer(const JsonNode& node, TokenizerDescription& out);
void read_post_processor(const JsonNode& node, TokenizerDescription& out);
void read_decoder(const JsonNode& node, TokenizerDescription& out);

}  // namespace megalith
