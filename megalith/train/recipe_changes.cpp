#include "megalith/train/recipe_changes.h"

#include <map>
#include <set>
#include <sstream>

namespace megalith {

namespace {

// table.key -> value, as to_toml writes them: one key a line.
std::map<std::string, std::string> values_of(const std::string& toml) {
  static const std::set<std::string> tables = {"data", "train", "optimizer", "schedule"};
  static const std::set<std::string> harmless = {"data.tokenizer", "train.threads", "train.recompute"};
  std::map<std::string, std::string> values;
  std::istringstream lines(toml);
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      table = line.substr(1, line.find(']') - 1);
      continue;
    }
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos || !tables.contains(table)) continue;
    const std::string key = table + "." + line.substr(0, equals);
    if (!harmless.contains(key)) values[key] = line.substr(equals + 3);
  }
  return values;
}

}  // namespace

std::vector<std::string> recipe_changes(const std::string& stored, const std::string& current) {
  const auto before = values_of(stored), after = values_of(current);
  std::vector<std::string> changes;
  for (const auto& [key, value] : after) {
    const auto found = before.find(key);
    // A key that the stored recipe does not have came later, with its default.
    if (found != before.end() && found->second != value) {
      changes.push_back(key + ": " + found->second + " -> " + value);
    }
  }
  return changes;
}

}  // namespace megalith
