// The metadata of a GGUF file under its architecture's name, read and written by one description.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megalith/formats/gguf.h"
#include "megalith/model/model_config.h"

namespace megalith {

/// Keys without the architecture in front ("block_count"), and small tensors that belong to the
/// configuration.
struct GgufConfigEntries {
  std::string architecture;
  std::map<std::string, std::variant<int64_t, double, bool, std::string>, std::less<>> keys;
  std::map<std::string, std::vector<float>, std::less<>> tensors;
};

class GgufFields {
 public:
  /// Reads what a file says; `where` stands for it in errors.
  static GgufFields reader(GgufConfigEntries entries, std::string where) {
    return {std::move(entries), std::move(where), false};
  }
  static GgufFields writer(std::string architecture) { return {{std::move(architecture), {}, {}}, {}, true}; }

  bool writing() const { return writing_; }
  const GgufConfigEntries& entries() const { return entries_; }
  const std::string& where() const { return where_; }

  void required(const char* key, int64_t& value);
  void required(const char* key, double& value);
  /// Absent keys stand for `absent`, which is not written.
  void optional(const char* key, int64_t& value, int64_t absent);
  void optional(const char* key, double& value, double absent);
  void optional(const char* key, bool& value, bool absent);
  void optional(const char* key, std::string& value, const std::string& absent);
  /// Numbers in a tensor; none when it is absent, and then it is not written.
  void numbers(const char* tensor, std::vector<double>& values);
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }
  /// Reading: throws InputError for a key that nothing has asked for.
  void refuse_unknown() const;

 private:
  GgufFields(GgufConfigEntries entries, std::string where, bool writing)
      : entries_(std::move(entries)), where_(std::move(where)), writing_(writing) {}
  template <class T>
  std::optional<T> find(const char* key);

  GgufConfigEntries entries_;
  std::string where_;
  bool writing_;
  std::set<std::string, std::less<>> known_;
};

/// Whether a tensor belongs to the configuration: factors of rotary frequencies.
bool is_config_tensor(std::string_view name);

/// What a file says about its configuration. Throws InputError without an architecture, or when a key of it
/// is an array.
GgufConfigEntries read_config_entries(const GgufFile& file);

/// Adds keys to a file; tensors are planned and written by the caller.
void write_config_keys(const GgufConfigEntries& entries, GgufWriter& writer);

}  // namespace megalith
