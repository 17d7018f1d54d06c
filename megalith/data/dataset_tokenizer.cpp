#include "megalith/data/dataset_tokenizer.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "megalith/base/checksum.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {

namespace {

std::filesystem::path record_path(const std::filesystem::path& prefix) {
  std::filesystem::path path = prefix;
  path += ".tokenizer.json";
  return path;
}

std::optional<DatasetTokenizer> read_dataset_tokenizer(const std::filesystem::path& prefix) {
  const std::filesystem::path path = record_path(prefix);
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  check_input(json.is_object() && json.contains("checksum") && json["checksum"].is_string(),
              "{}: expected an object with \"checksum\"", path.string());
  return DatasetTokenizer{json["checksum"].get<std::string>()};
}

}  // namespace

DatasetTokenizer describe_tokenizer(const std::string& tokenizer_json) {
  return {checksum(tokenizer_json.data(), tokenizer_json.size())};
}

void write_dataset_tokenizer(const std::filesystem::path& prefix, const DatasetTokenizer& tokenizer) {
  write_file_atomic(record_path(prefix), nlohmann::json{{"checksum", tokenizer.checksum}}.dump() + "\n");
}

void check_dataset_tokenizer(const std::filesystem::path& prefix, const DatasetTokenizer& tokenizer) {
  const auto recorded = read_dataset_tokenizer(prefix);
  check_input(!recorded || recorded->checksum == tokenizer.checksum,
              "{} was made with another tokenizer than data.tokenizer ({} says so): tokenise the text again",
              prefix.string(), record_path(prefix).filename().string());
}

void merge_dataset_tokenizers(const std::vector<std::string>& inputs, const std::filesystem::path& output) {
  std::optional<DatasetTokenizer> common;
  std::string from;
  bool all = true;
  for (const std::string& input : inputs) {
    const auto recorded = read_dataset_tokenizer(input);
    all = all && recorded.has_value();
    if (!recorded) continue;
    check_input(!common || common->checksum == recorded->checksum,
                "{} and {} were made with different tokenizers", from, input);
    common = recorded;
    from = input;
  }
  if (common && all) {
    write_dataset_tokenizer(output, *common);
  } else {
    std::filesystem::remove(record_path(output));  // of an earlier dataset of that name
  }
}

}  // namespace megalith
