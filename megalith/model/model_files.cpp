#include "megalith/model/model_files.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/model/gguf_model.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/hugging_face.h"
#include "megalith/model/stored_copy.h"
#include "megalith/model/tokenizer_files.h"
#include "megalith/ops/elementwise.h"

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

Shape to_shape(const std::vector<int64_t>& dimensions) {
  Shape shape;
  for (const int64_t dimension : dimensions) shape.push_back(dimension);
  return shape;
}

// The weights of a Hugging Face directory by name.
class HuggingFaceWeights {
 public:
  HuggingFaceWeights(const fs::path& directory, const Family& family)
      : directory_(directory), prefix_(family.prefix), files_(open_shards(directory)) {
    for (const auto& file : files_) {
      for (const SafetensorsEntry& entry : file->entries()) {
        const bool added = entries_.emplace(entry.name, std::pair(file.get(), &entry)).second;
        check_input(added, "{}: tensor {} is in two files", directory.string(), entry.name);
      }
    }
  }

  bool has(const std::string& name) const { return find(name) != entries_.end(); }
  // The tensor, of this shape and a type that weights can have; it counts as used.
  TensorView take(const std::string& name, const Shape& shape) {
    const auto found = find(name);
    check_input(found != entries_.end(), "{}: there is no tensor {}", directory_.string(), name);
    const auto& [file, entry] = found->second;
    used_.insert(entry->name);
    const TensorView view = file->view(*entry);
    check_input(view.shape() == shape && is_weight_type(view.dtype()),
                "{}: tensor {} is {} {}; config.json makes it {}", directory_.string(), entry->name,
                megalith::name(view.dtype()), to_string(view.shape()), to_string(shape));
    return view;
  }
  // `tied_head`: the output projection may be there a second time.
  void refuse_unused(const std::string& tied_head) const {
    for (const auto& [name, where] : entries_) {
      check_input(used_.contains(name) || is_ignored_tensor(name) || name == tied_head,
                  "{}: tensor {} is not understood and could change the numbers", directory_.string(), name);
    }
  }

 private:
  using Entries =
      std::map<std::string, std::pair<const SafetensorsFile*, const SafetensorsEntry*>, std::less<>>;

  // Models saved without their head lack the prefix; those that lost it may have kept it.
  Entries::const_iterator find(const std::string& name) const {
    auto found = entries_.find(name);
    if (found == entries_.end() && name.starts_with(prefix_)) {
      found = entries_.find(std::string_view(name).substr(prefix_.size()));
    }
    if (found == entries_.end()) found = entries_.find(std::string(prefix_) + name);
    return found;
  }

  fs::path directory_;
  std::string_view prefix_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  Entries entries_;
  std::set<std::string_view> used_;
};

void load_hugging_face(const fs::path& directory, const ModelConfig& config,
                       const ParameterBuffers& parameters, const ExecContext& exec) {
  const Family& model_family = family(config.form);
  HuggingFaceWeights weights(directory, model_family);
  for (const ParameterSlot& slot : parameters.slots()) {
    const Parameter& parameter = *slot.parameter;
    int64_t row = 0;
    for (const StoredTensor& tensor : hugging_face_tensors(model_family, config, parameter)) {
      const TensorView from = weights.take(tensor.name, to_shape(tensor.shape_for(parameter.shape)));
      read_stored(exec, tensor, from, parameter.value.slice(row, row + tensor.rows));
      row += tensor.rows;
    }
  }
  std::string tied_head;
  if (config.tied_embeddings && config.head != HeadKind::none) {
    const Parameter head = make_parameter("head.weight", {config.vocab_size, config.hidden_size}, {}, false);
    tied_head = hugging_face_tensors(model_family, config, head).front().name;
  }
  weights.refuse_unused(tied_head);
}

// What config.json leaves to the tensors.
void complete_config(const fs::path& directory, ModelConfig& config) {
  if (!config.pooler) return;
  const HuggingFaceWeights weights(directory, family(config.form));
  const Parameter pooler =
      make_parameter("pooler.weight", {config.hidden_size, config.hidden_size}, {}, false);
  config.pooler = weights.has(hugging_face_tensors(family(config.form), config, pooler).front().name);
}

std::string optional_file(const fs::path& path) {
  return fs::exists(path) ? read_file(path) : std::string();
}

// The "eos_token_id" of a JSON file, a number or a list; nothing when it has none.
std::vector<int32_t> end_ids_of(const std::string& text, const std::string& where) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("eos_token_id") || json["eos_token_id"].is_null()) return {};
  const nlohmann::json& ids = json["eos_token_id"];
  std::vector<int32_t> result;
  for (const nlohmann::json& id : ids.is_array() ? ids : nlohmann::json::array({ids})) {
    check_input(id.is_number_unsigned() && id.get<uint64_t>() < (uint64_t{1} << 31),
                "{}: \"eos_token_id\" must be a token id or a list of them", where);
    result.push_back(id.get<int32_t>());
  }
  return result;
}

std::vector<int32_t> hugging_face_end_ids(const fs::path& directory) {
  for (const char* name : {kGenerationConfigFile, "config.json"}) {
    std::vector<int32_t> ids = end_ids_of(optional_file(directory / name), (directory / name).string());
    if (!ids.empty()) return ids;
  }
  return {};
}

// A file of its own, or a string in tokenizer_config.json.
std::string hugging_face_chat_template(const fs::path& directory) {
  if (fs::exists(directory / kChatTemplateFile)) return read_file(directory / kChatTemplateFile);
  const auto json = nlohmann::json::parse(optional_file(directory / "tokenizer_config.json"), nullptr, false);
  if (!json.is_object() || !json.contains("chat_template") || !json["chat_template"].is_string()) return {};
  return json["chat_template"].get<std::string>();
}

}  // namespace

std::string model_config_to_toml(ModelConfig config) {
  return config_to_toml([&](ConfigVisitor& visitor) { config.describe(visitor); });
}

ModelConfig read_model_config(const CheckpointReader& reader) {
  const ConfigSource source =
      ConfigSource::from_text(reader.read_file("model.toml"), (reader.directory() / "model.toml").string());
  ModelConfig model;
  source.read([&](ConfigVisitor& visitor) { model.describe(visitor); });
  model.resolve();
  return model;
}

ModelDescription describe_model(const fs::path& path) {
  check_input(fs::exists(path), "{}: there is no such file or directory", path.string());
  ModelDescription description;
  if (is_gguf(path)) {
    const GgufFile file(path);
    description.kind = ModelFileKind::gguf;
    description.directory = path;
    description.config = config_from_gguf(file);
    try {
      description.tokenizer = tokenizer_from_gguf(file);
    } catch (const InputError& error) {
      description.tokenizer_error = error.what();
    }
    description.end_of_text = end_of_text_ids(file);
    description.chat_template = file.text("tokenizer.chat_template").value_or("");
    check_input(valid_utf8_prefix(description.chat_template) == description.chat_template.size(),
                "{}: \"tokenizer.chat_template\" is not valid UTF-8", path.string());
    return description;
  }
  check_input(fs::is_directory(path),
              "{}: a model is a run directory, a checkpoint, a Hugging Face directory or a GGUF file",
              path.string());
  if (const auto checkpoint = find_checkpoint(path)) {
    const CheckpointReader reader(*checkpoint);
    description.kind = ModelFileKind::checkpoint;
    description.directory = *checkpoint;
    description.config = read_model_config(reader);
    description.step = reader.step();
    if (reader.has_file("tokenizer.json")) description.tokenizer_json = reader.read_file("tokenizer.json");
    if (reader.has_file(kGenerationConfigFile)) {
      description.end_of_text = end_ids_of(reader.read_file(kGenerationConfigFile), kGenerationConfigFile);
    }
    if (reader.has_file(kChatTemplateFile)) description.chat_template = reader.read_file(kChatTemplateFile);
    return description;
  }
  check_input(fs::exists(path / "config.json"),
              "{}: neither a Megalith checkpoint (manifest.json), nor a run with a complete one "
              "(checkpoints/), nor a "
              "Hugging Face directory (config.json)",
              path.string());
  description.kind = ModelFileKind::hugging_face;
  description.directory = path;
  description.config =
      config_from_hugging_face(read_file(path / "config.json"), (path / "config.json").string());
  complete_config(path, description.config);
  description.tokenizer_json = optional_file(path / "tokenizer.json");
  const fs::path tokenizer_file = find_tokenizer_file(path);
  if (description.tokenizer_json.empty() && !tokenizer_file.empty()) {
    try {
      description.tokenizer = Tokenizer::load(tokenizer_file);
    } catch (const InputError& error) {
      description.tokenizer_error = error.what();
    }
  }
  description.end_of_text = hugging_face_end_ids(path);
  description.chat_template = hugging_face_chat_template(path);
  return description;
}

Tokenizer ModelDescription::open_tokenizer() const {
  check_input(tokenizer_error.empty(), "{}", tokenizer_error);
  check_input(has_tokenizer(), "{} holds no tokenizer; give a tokenizer.json with --tokenizer",
              directory.string());
  if (tokenizer) return *tokenizer;
  return Tokenizer::from_json(tokenizer_json, (directory / "tokenizer.json").string());
}

LoadedModel::LoadedModel(const ModelDescription& description, DType dtype, const ExecContext& exec)
    : model_(std::make_unique<Transformer>(description.config)) {
  parameters_ = std::make_unique<ParameterBuffers>(
      [this](const ParameterVisitor& visitor) { model_->walk(visitor); }, dtype, arena_, nullptr);
  if (description.kind == ModelFileKind::gguf) {
    load_gguf(GgufFile(description.directory), description.config, *parameters_, exec);
    return;
  }
  if (description.kind == ModelFileKind::hugging_face) {
    load_hugging_face(description.directory, description.config, *parameters_, exec);
    return;
  }
  const CheckpointReader reader(description.directory);
  for (const ParameterSlot& slot : parameters_->slots()) {
    Parameter& parameter = *slot.parameter;
    const TensorView from = reader.tensor(parameter.name);
    check_input(from.shape() == parameter.shape, "{}: tensor {} is {}; the model needs {}",
                description.directory.string(), parameter.name, to_string(from.shape()),
                to_string(parameter.shape));
    convert(exec, from, parameter.value.slice(0, parameter.shape[0]));
  }
}

void LoadedModel::pack_weights(const ExecContext& exec) {
  for (const ParameterSlot& slot : parameters_->slots()) {
    if (slot.parameter->is_product_weight) slot.parameter->pack(exec, packed_);
  }
}

void save_hugging_face(const LoadedModel& loaded, const ModelExtras& extras, DType dtype,
                       const fs::path& directory) {
  const ModelConfig& config = loaded.config();
  SpecialTokenIds ids = special_token_ids(extras.tokenizer_json);
  if (!extras.end_of_text.empty()) ids.end_of_text = extras.end_of_text.front();
  const std::string config_json = config_to_hugging_face(config, dtype, ids);
  std::error_code code;
  fs::create_directories(directory, code);
  check(!code, "cannot create {}: {}", directory.string(), code.message());
  const Family& target = hugging_face_family(config);
  SafetensorsPlan plan;
  plan.metadata["format"] = "pt";
  for (const ParameterSlot& slot : loaded.parameters().slots()) {
    for (const StoredTensor& tensor : hugging_face_tensors(target, config, *slot.parameter)) {
      plan.add(tensor.name, dtype, to_shape(tensor.shape_for(slot.parameter->shape)));
    }
  }
  const fs::path partial = directory / "model.safetensors.partial";
  SafetensorsWriter writer(partial, std::move(plan));
  Arena scratch("conversion");
  const ExecContext exec{scratch, default_threads()};
  for (const ParameterSlot& slot : loaded.parameters().slots()) {
    const Parameter& parameter = *slot.parameter;
    int64_t row = 0;
    for (const StoredTensor& tensor : hugging_face_tensors(target, config, parameter)) {
      ArenaScope scope(scratch);
      const TensorView to = scratch.allocate(dtype, to_shape(tensor.shape_for(parameter.shape)));
      write_stored(exec, tensor, parameter.value.slice(row, row + tensor.rows), to);
      writer.write(tensor.name, to.raw(), to.bytes());
      row += tensor.rows;
    }
  }
  writer.finish();
  fs::rename(partial, directory / "model.safetensors");
  if (!extras.tokenizer_json.empty()) write_file_atomic(directory / "tokenizer.json", extras.tokenizer_json);
  if (!extras.end_of_text.empty()) {
    write_file_atomic(directory / kGenerationConfigFile,
                      nlohmann::json{{"eos_token_id", extras.end_of_text}}.dump(2) + "\n");
  }
  if (!extras.chat_template.empty()) {
    write_file_atomic(directory / "tokenizer_config.json",
                      nlohmann::json{{"chat_template", extras.chat_template},
                                     {"tokenizer_class", "PreTrainedTokenizerFast"}}
                              .dump(2) +
                          "\n");
  }
  write_file_atomic(directory / "config.json", config_json);
}

void save_model_checkpoint(const LoadedModel& loaded, const ModelExtras& extras, const fs::path& directory,
                           const std::string& state_json) {
  CheckpointWriter writer(directory);
  Arena scratch("conversion");
  const ExecContext exec{scratch};
  std::vector<CheckpointTensor> tensors;
  for (const ParameterSlot& slot : loaded.parameters().slots()) {
    const Parameter& parameter = *slot.parameter;
    const TensorView to = scratch.allocate(DType::f32, parameter.shape);
    convert(exec, parameter.value.slice(0, parameter.shape[0]), to);
    tensors.push_back({parameter.name, to});
  }
  writer.write_tensors("model.safetensors", tensors);
  writer.write_file("model.toml", model_config_to_toml(loaded.config()));
  if (!extras.tokenizer_json.empty()) writer.write_file("tokenizer.json", extras.tokenizer_json);
  if (!extras.chat_template.empty()) writer.write_file(kChatTemplateFile, extras.chat_template);
  if (!extras.end_of_text.empty()) {
    writer.write_file(kGenerationConfigFile,
                      nlohmann::json{{"eos_token_id", extras.end_of_text}}.dump() + "\n");
  }
  writer.commit(0, state_json);
}

}  // namespace megalith
