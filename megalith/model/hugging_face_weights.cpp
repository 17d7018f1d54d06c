#include "megalith/model/hugging_face_weights.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/model/stored_copy.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// Weight files of a directory: model.safetensors, or the shards that model.safetensors.index.json names.
std::vector<std::unique_ptr<SafetensorsFile>> open_shards(const fs::path& directory) {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  const fs::path index = directory / "model.safetensors.index.json";
  if (!fs::exists(index)) {
    check_input(
        fs::exists(directory / "model.safetensors"),
        "{}: there is no model.safetensors (pickled .bin files are not read: convert them with transformers' "
        "save_pretrained)",
        directory.string());
    files.push_back(std::make_unique<SafetensorsFile>(directory / "model.safetensors"));
    return files;
  }
  const nlohmann::json json = nlohmann::json::parse(read_file(index), nullptr, false);
  check_input(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
              "{}: \"weight_map\" is missing", index.string());
  std::vector<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    check_input(file.is_string() && file.get<std::string>().find('/') == std::string::npos,
                "{}: the shard of {} is not a file name", index.string(), tensor);
    names.push_back(file.get<std::string>());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) files.push_back(std::make_unique<SafetensorsFile>(directory / name));
  return files;
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const fs::path& directory, const ModelConfig& config)
    : directory_(directory), config_(config), family_(family(config.form)), files_(open_shards(directory)) {
  for (const auto& file : files_) {
    for (const SafetensorsEntry& entry : file->entries()) {
      const bool added = entries_.emplace(entry.name, std::pair(file.get(), &entry)).second;
      check_input(added, "{}: tensor {} is in two files", directory.string(), entry.name);
    }
  }
}

std::vector<StoredTensor> HuggingFaceWeights::tensors_of(const Parameter& parameter) const {
  return hugging_face_tensors(family_, config_, parameter);
}

bool HuggingFaceWeights::has(const Parameter& parameter) const {
  for (const StoredTensor& stored : tensors_of(parameter)) {
    if (find(stored.name) == entries_.end()) return false;
  }
  return true;
}

// Models saved without their head lack the prefix; those that lost it may have kept it.
HuggingFaceWeights::Entries::const_iterator HuggingFaceWeights::find(const std::string& name) const {
  auto found = entries_.find(name);
  if (found == entries_.end() && name.starts_with(family_.prefix)) {
    found = entries_.find(std::string_view(name).substr(family_.prefix.size()));
  }
  if (found == entries_.end()) found = entries_.find(std::string(family_.prefix) + name);
  return found;
}

TensorView HuggingFaceWeights::take(const Parameter& parameter, const StoredTensor& stored) {
  const auto found = find(stored.name);
  check_input(found != entries_.end(), "{}: there is no tensor {}", directory_.string(), stored.name);
  const auto& [file, entry] = found->second;
  used_.insert(entry->name);
  const TensorView view = file->view(*entry);
  const Shape shape = stored.shape_for(parameter.shape);
  check_input(view.shape() == shape && is_weight_type(view.dtype()),
              "{}: tensor {} is {} {}; config.json makes it {}", directory_.string(), entry->name,
              name(view.dtype()), to_string(view.shape()), to_string(shape));
  return view;
}

void HuggingFaceWeights::encode(const std::function<void(const ParameterVisitor&)>& walk,
                                EncodedWeights& encoded) {
  walk([&](Parameter& parameter) {
    const std::vector<StoredTensor> tensors = tensors_of(parameter);
    if (!EncodedWeights::serves(parameter, tensors)) return;
    EncodedMatrix& matrix = encoded.add(parameter);
    for (const StoredTensor& stored : tensors) {
      const TensorView view = take(parameter, stored);
      EncodedWeights::append(matrix, stored, view.raw(), row_code(view.dtype()));
    }
    EncodedWeights::finish(matrix, parameter);
  });
}

void HuggingFaceWeights::load(const ParameterBuffers& parameters, const ExecContext& exec) {
  for (const ParameterSlot& slot : parameters.slots()) {
    const Parameter& parameter = *slot.parameter;
    int64_t row = 0;
    for (const StoredTensor& stored : tensors_of(parameter)) {
      const TensorView from = take(parameter, stored);
      read_stored(exec, stored, from, parameter.value.slice(row, row + stored.rows));
      row += stored.rows;
    }
  }
  refuse_unused();
}

HuggingFaceWeights::Summary HuggingFaceWeights::summary() const {
  Summary summary;
  for (const auto& [name, where] : entries_) {
    summary.tensors[megalith::name(where.second->dtype)] += 1;
    summary.bytes += where.second->bytes();
    if (is_left_out(name)) summary.ignored.push_back(name);
  }
  return summary;
}

bool HuggingFaceWeights::is_left_out(const std::string& name) const {
  if (is_ignored_tensor(name)) return true;
  // A tied output projection may be there a second time.
  if (!config_.tied_embeddings || config_.head == HeadKind::none) return false;
  const Parameter head = make_parameter("head.weight", {config_.vocab_size, config_.hidden_size}, {}, false);
  return name == tensors_of(head).front().name;
}

void HuggingFaceWeights::refuse_unused() const {
  for (const auto& [name, where] : entries_) {
    check_input(used_.contains(name) || is_left_out(name),
                "{}: tensor {} is not understood and could change the numbers", directory_.string(), name);
  }
}

}  // namespace megalith
