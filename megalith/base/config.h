// Typed configuration: structs describe their fields to a ConfigVisitor once; reading TOML, writing it back,
// checking ranges and printing the reference are visitors. A key that nothing describes is an error that
// names file, line and the nearest key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A dataset or other path with a blending weight.
struct WeightedPath {
  std::string path;
  double weight = 1.0;

  bool operator==(const WeightedPath&) const = default;
};

class ConfigVisitor {
 public:
  virtual ~ConfigVisitor() = default;

  /// The fields that follow belong to this table.
  virtual void table(const char* name, const char* documentation) = 0;
  virtual void integer(const char* name, int64_t& value, int64_t least, int64_t most, const char* unit,
                       const char* documentation) = 0;
  virtual void real(const char* name, double& value, double least, double most, const char* unit,
                    const char* documentation) = 0;
  virtual void boolean(const char* name, bool& value, const char* documentation) = 0;
  virtual void text(const char* name, std::string& value, const char* documentation) = 0;
  /// A list of { path = "...", weight = 1.0 }; plain strings and a single string are accepted too.
  virtual void weighted_paths(const char* name, std::vector<WeightedPath>& value,
                              const char* documentation) = 0;

  virtual void reals(const char* name, std::vector<double>& value, const char* documentation) = 0;

  /// An enumeration by the names of its values, in the order of the values from 0.
  template <class Enum>
  void choice(const char* name, Enum& value, std::span<const std::string_view> names,
              const char* documentation) {
    size_t index = static_cast<size_t>(value);
    choose(name, index, names, documentation);
    value = static_cast<Enum>(index);
  }

 protected:
  virtual void choose(const char* name, size_t& index, std::span<const std::string_view> names,
                      const char* documentation) = 0;
};

/// Describes all fields of a configuration to a visitor.
using ConfigDescription = std::function<void(ConfigVisitor&)>;

/// A parsed TOML file with overrides on top.
class ConfigSource {
 public:
  /// `overrides` are "table.key=value" with a TOML value, or a bare word taken as a string. Throws InputError
  /// that names the file, line and column, or the override.
  static ConfigSource from_file(const std::filesystem::path& path,
                                const std::vector<std::string>& overrides = {});
  static ConfigSource from_text(std::string_view text, const std::string& source_name,
                                const std::vector<std::string>& overrides = {});
  ConfigSource(ConfigSource&&) noexcept;
  ConfigSource& operator=(ConfigSource&&) noexcept;
  ~ConfigSource();

  /// A string value before everything is read, for example model.form, which decides the defaults.
  std::optional<std::string> find_text(std::string_view table, std::string_view key) const;

  /// Fills the described fields and refuses unknown keys, wrong types and values out of range (InputError).
  void read(const ConfigDescription& describe) const;

 private:
  struct Content;
  explicit ConfigSource(std::unique_ptr<Content> content);
  std::unique_ptr<Content> content_;
};

/// The configuration as TOML, every key with its value; reading it back gives the same values.
std::string config_to_toml(const ConfigDescription& describe);

/// The reference of all keys: default, unit, range and a sentence, for an 80-column terminal.
std::string config_reference(const ConfigDescription& describe);

/// The candidate with the smallest edit distance to `word`, or nothing when none is near.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace megalith
