#include "megalith/base/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#define TOML_HEADER_ONLY 0
#include <toml++/toml.h>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {

struct ConfigSource::Content {
  std::string name;
  toml::table root;
  std::map<std::string, std::string> overridden;  // "table.key" -> the override's text
};

namespace {

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string format_real(double value) {
  std::string text = fmt::format("{}", value);
  const bool plain_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  return plain_integer ? text + ".0" : text;
}

// Fills fields from a TOML document.
class Reader : public ConfigVisitor {
 public:
  Reader(const toml::table& root, const std::string& source,
         const std::map<std::string, std::string>& overridden)
      : root_(root), source_(source), overridden_(overridden) {}

  void table(const char* name, const char*) override {
    table_name_ = name;
    known_tables_.insert(name);
    table_ = nullptr;
    if (const toml::node* node = root_.get(name)) {
      if (!node->is_table()) fail_input("{}: [{}] must be a table", place(*node, name), name);
      table_ = node->as_table();
    }
  }

  void integer(const char* name, int64_t& value, int64_t least, int64_t most, const char*,
               const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    std::optional<int64_t> given;
    if (node->is_integer()) {
      given = node->as_integer()->get();
    } else if (node->is_floating_point()) {  // 1e9 is a natural way to write a number of tokens.
      const double real = node->as_floating_point()->get();
      if (real == std::floor(real) && std::abs(real) < 9e15) given = static_cast<int64_t>(real);
    }
    if (!given) fail_input("{}: {} must be an integer", place(*node, name), key(name));
    if (*given < least || *given > most) {
      fail_input("{}: {} = {} is out of range; allowed is {}", place(*node, name), key(name), *given,
                 most == std::numeric_limits<int64_t>::max() ? fmt::format("{} or more", least)
                                                             : fmt::format("{} to {}", least, most));
    }
    value = *given;
  }

  void real(const char* name, double& value, double least, double most, const char*, const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    double given = 0;
    if (node->is_floating_point()) {
      given = node->as_floating_point()->get();
    } else if (node->is_integer()) {
      given = static_cast<double>(node->as_integer()->get());
    } else {
      fail_input("{}: {} must be a number", place(*node, name), key(name));
    }
    if (!(given >= least && given <= most)) {
      fail_input("{}: {} = {} is out of range; allowed is {}", place(*node, name), key(name), given,
                 std::isinf(most) ? fmt::format("{} or more", least) : fmt::format("{} to {}", least, most));
    }
    value = given;
  }

  void boolean(const char* name, bool& value, const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    if (!node->is_boolean()) fail_input("{}: {} must be true or false", place(*node, name), key(name));
    value = node->as_boolean()->get();
  }

  void text(const char* name, std::string& value, const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    if (!node->is_string()) fail_input("{}: {} must be a string", place(*node, name), key(name));
    value = node->as_string()->get();
  }

  void weighted_paths(const char* name, std::vector<WeightedPath>& value, const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    value.clear();
    if (node->is_string()) {
      value.push_back({node->as_string()->get(), 1.0});
      return;
    }
    if (!node->is_array()) {
      fail_input("{}: {} must be a list of {{ path = \"...\", weight = 1.0 }}", place(*node, name),
                 key(name));
    }
    for (const toml::node& item : *node->as_array()) {
      if (item.is_string()) {
        value.push_back({item.as_string()->get(), 1.0});
        continue;
      }
      if (!item.is_table()) {
        fail_input("{}: {} must be a list of {{ path = \"...\", weight = 1.0 }}", place(item, name),
                   key(name));
      }
      WeightedPath entry;
      bool has_path = false;
      for (const auto& [entry_key, entry_value] : *item.as_table()) {
        if (entry_key == "path" && entry_value.is_string()) {
          entry.path = entry_value.as_string()->get();
          has_path = true;
        } else if (entry_key == "weight" && entry_value.is_number()) {
          entry.weight = entry_value.is_integer() ? static_cast<double>(entry_value.as_integer()->get())
                                                  : entry_value.as_floating_point()->get();
        } else {
          fail_input("{}: {} has an entry \"{}\"; entries hold path (a string) and weight (a number)",
                     place(entry_value, name), key(name), std::string(entry_key.str()));
        }
      }
      if (!has_path) fail_input("{}: an entry of {} has no path", place(item, name), key(name));
      if (!(entry.weight >= 0 && std::isfinite(entry.weight))) {
        fail_input("{}: {} has weight {}; a weight is a number of 0 or more", place(item, name), key(name),
                   entry.weight);
      }
      value.push_back(std::move(entry));
    }
  }

  void reals(const char* name, std::vector<double>& value, const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    const toml::array* items = node->as_array();
    if (items == nullptr) fail_input("{}: {} must be a list of numbers", place(*node, name), key(name));
    value.clear();
    for (const toml::node& item : *items) {
      const std::optional<double> number = item.value<double>();
      if (!number || !std::isfinite(*number)) {
        fail_input("{}: {} must be a list of numbers", place(item, name), key(name));
      }
      value.push_back(*number);
    }
  }

  void refuse_unknown_keys() const {
    for (const auto& [table_key, node] : root_) {
      const std::string table_name(table_key.str());
      if (!known_tables_.contains(table_name)) {
        if (node.is_table()) {
          fail_input("{}: unknown table [{}]{}", place(node, table_name), table_name,
                     suggestion(table_name, known_tables_));
        }
        fail_input("{}: \"{}\" stands outside a table{}", place(node, table_name), table_name,
                   suggestion(table_name, known_tables_));
      }
      if (!node.is_table()) continue;
      const std::set<std::string>& known = known_keys_.at(table_name);
      for (const auto& [entry_key, value] : *node.as_table()) {
        const std::string name(entry_key.str());
        if (known.contains(name)) continue;
        fail_input("{}: unknown key {}.{}{}", place_of(value, table_name + "." + name), table_name, name,
                   suggestion(name, known));
      }
    }
  }

 protected:
  void choose(const char* name, size_t& index, std::span<const std::string_view> names,
              const char*) override {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    std::string given = node->is_string() ? node->as_string()->get() : std::string();
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == given) {
        index = i;
        return;
      }
    }
    fail_input("{}: {} = \"{}\" is not known; choose one of {}", place(*node, name), key(name), given,
               fmt::join(names, ", "));
  }

 private:
  static std::string suggestion(const std::string& word, const std::set<std::string>& known) {
    const auto near = nearest_word(word, {known.begin(), known.end()});
    return near ? fmt::format("; did you mean \"{}\"?", *near) : std::string();
  }

  const toml::node* find(const char* name) {
    known_keys_[table_name_].insert(name);
    return table_ == nullptr ? nullptr : table_->get(name);
  }

  std::string key(const char* name) const { return table_name_ + "." + name; }

  std::string place(const toml::node& node, const std::string& name) const {
    return place_of(node, table_name_ + "." + name);
  }

  std::string place_of(const toml::node& node, const std::string& full_key) const {
    if (const auto found = overridden_.find(full_key); found != overridden_.end()) {
      return fmt::format("--set {}", found->second);
    }
    const auto line = node.source().begin.line;
    return line == 0 ? source_ : fmt::format("{}:{}", source_, line);
  }

  const toml::table& root_;
  const std::string& source_;
  const std::map<std::string, std::string>& overridden_;
  const toml::table* table_ = nullptr;
  std::string table_name_;
  std::set<std::string> known_tables_;
  std::map<std::string, std::set<std::string>> known_keys_;
};

// Writes fields as TOML.
class Writer : public ConfigVisitor {
 public:
  void table(const char* name, const char*) override {
    if (!out.empty()) out += '\n';
    out += fmt::format("[{}]\n", name);
  }
  void integer(const char* name, int64_t& value, int64_t, int64_t, const char*, const char*) override {
    out += fmt::format("{} = {}\n", name, value);
  }
  void real(const char* name, double& value, double, double, const char*, const char*) override {
    out += fmt::format("{} = {}\n", name, format_real(value));
  }
  void boolean(const char* name, bool& value, const char*) override {
    out += fmt::format("{} = {}\n", name, value);
  }
  void text(const char* name, std::string& value, const char*) override {
    out += fmt::format("{} = {}\n", name, quote(value));
  }
  void weighted_paths(const char* name, std::vector<WeightedPath>& value, const char*) override {
    std::vector<std::string> items;
    for (const WeightedPath& item : value) {
      items.push_back(
          fmt::format("{{ path = {}, weight = {} }}", quote(item.path), format_real(item.weight)));
    }
    out += fmt::format("{} = [{}]\n", name, fmt::join(items, ", "));
  }

  void reals(const char* name, std::vector<double>& value, const char*) override {
    std::vector<std::string> items;
    for (const double item : value) items.push_back(format_real(item));
    out += fmt::format("{} = [{}]\n", name, fmt::join(items, ", "));
  }

  std::string out;

 protected:
  void choose(const char* name, size_t& index, std::span<const std::string_view> names,
              const char*) override {
    out += fmt::format("{} = {}\n", name, quote(names[index]));
  }
};

// Prints the reference.
class Describer : public ConfigVisitor {
 public:
  void table(const char* name, const char* documentation) override {
    if (!out.empty()) out += '\n';
    wrap(fmt::format("[{}] ", name), documentation, "     ");
  }
  void integer(const char* name, int64_t& value, int64_t least, int64_t most, const char* unit,
               const char* documentation) override {
    const std::string range = most == std::numeric_limits<int64_t>::max()
                                  ? fmt::format("{} or more", least)
                                  : fmt::format("{} to {}", least, most);
    line(name, std::to_string(value), unit, range, documentation);
  }
  void real(const char* name, double& value, double least, double most, const char* unit,
            const char* documentation) override {
    const std::string range =
        std::isinf(most) ? fmt::format("{} or more", least) : fmt::format("{} to {}", least, most);
    line(name, format_real(value), unit, range, documentation);
  }
  void boolean(const char* name, bool& value, const char* documentation) override {
    line(name, value ? "true" : "false", "", "", documentation);
  }
  void text(const char* name, std::string& value, const char* documentation) override {
    line(name, quote(value), "", "", documentation);
  }
  void weighted_paths(const char* name, std::vector<WeightedPath>&, const char* documentation) override {
    line(name, "[]", "", "list of { path, weight }", documentation);
  }
  void reals(const char* name, std::vector<double>&, const char* documentation) override {
    line(name, "[]", "", "list of numbers", documentation);
  }

  std::string out;

 protected:
  void choose(const char* name, size_t& index, std::span<const std::string_view> names,
              const char* documentation) override {
    line(name, quote(names[index]), "", fmt::format("{}", fmt::join(names, ", ")), documentation);
  }

 private:
  void line(const char* name, const std::string& value, const std::string& unit, const std::string& range,
            const char* documentation) {
    std::string heading = fmt::format("  {} = {}", name, value);
    if (!unit.empty()) heading += fmt::format(" {}", unit);
    if (range.empty()) {
      out += heading + '\n';
    } else {
      wrap(heading + " ", fmt::format("({})", range), "       ");
    }
    wrap("     ", documentation, "     ");
  }

  // Appends `current` and the words of `text`, in lines of at most 80 columns.
  void wrap(std::string current, const std::string& text, const char* indent) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (current.size() + 1 + word.size() > 80) {
        out += current + '\n';
        current = indent;
      }
      current += ' ' + word;
    }
    out += current + '\n';
  }
};

}  // namespace

ConfigSource::ConfigSource(std::unique_ptr<Content> content) : content_(std::move(content)) {}
ConfigSource::ConfigSource(ConfigSource&&) noexcept = default;
ConfigSource& ConfigSource::operator=(ConfigSource&&) noexcept = default;
ConfigSource::~ConfigSource() = default;

ConfigSource ConfigSource::from_file(const std::filesystem::path& path,
                                     const std::vector<std::string>& overrides) {
  return from_text(read_file(path), path.string(), overrides);
}

ConfigSource ConfigSource::from_text(std::string_view text, const std::string& source_name,
                                     const std::vector<std::string>& overrides) {
  auto content = std::make_unique<Content>();
  content->name = source_name;
  try {
    content->root = toml::parse(text, std::string_view(source_name));
  } catch (const toml::parse_error& error) {
    fail_input("{}:{}:{}: {}", source_name, error.source().begin.line, error.source().begin.column,
               std::string(error.description()));
  }
  for (const std::string& override_text : overrides) {
    const size_t equals = override_text.find('=');
    const size_t dot = override_text.find('.');
    check_input(equals != std::string::npos && dot != std::string::npos && dot > 0 && dot + 1 < equals,
                "--set {}: write it as table.key=value, for example --set train.steps=100", override_text);
    const std::string table_name = override_text.substr(0, dot);
    const std::string key = override_text.substr(dot + 1, equals - dot - 1);
    const std::string value_text = override_text.substr(equals + 1);
    toml::table parsed;
    try {
      parsed = toml::parse("value = " + value_text);
    } catch (const toml::parse_error&) {
      parsed = toml::table{{"value", value_text}};
    }
    if (parsed.size() != 1) parsed = toml::table{{"value", value_text}};
    if (!content->root.contains(table_name)) content->root.insert(table_name, toml::table{});
    toml::table* table = content->root[table_name].as_table();
    check_input(table != nullptr, "--set {}: {} is not a table", override_text, table_name);
    const toml::node& value = *parsed.get("value");
    value.visit([&](const auto& concrete) { table->insert_or_assign(key, concrete); });
    content->overridden[table_name + "." + key] = override_text;
  }
  return ConfigSource(std::move(content));
}

std::optional<std::string> ConfigSource::find_text(std::string_view table, std::string_view key) const {
  return content_->root[table][key].value<std::string>();
}

void ConfigSource::read(const ConfigDescription& describe) const {
  Reader reader(content_->root, content_->name, content_->overridden);
  describe(reader);
  reader.refuse_unknown_keys();
}

std::string config_to_toml(const ConfigDescription& describe) {
  Writer writer;
  describe(writer);
  return writer.out;
}

std::string config_reference(const ConfigDescription& describe) {
  Describer describer;
  describe(describer);
  return describer.out;
}

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    // Levenshtein distance, one row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t substitution = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace megalith
