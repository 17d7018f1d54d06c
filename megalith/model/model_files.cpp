#include "megalith/model/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/json_depth.h"
#include "megalith/base/utf8.h"
#include "megalith/model/gguf_model.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/hugging_face_weights.h"
#include "megalith/model/stored_copy.h"
#include "megalith/model/tokenizer_files.h"
#include "megalith/ops/elementwise.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// What config.json leaves to the tensors.
void complete_config(const fs::path& directory, ModelConfig& config) {
  if (!config.pooler) return;
  const Parameter pooler =
      make_parameter("pooler.weight", {config.hidden_size, config.hidden_size}, {}, false);
  config.pooler = HuggingFaceWeights(directory, config).has(pooler);
}

std::string optional_file(const fs::path& path) {
  return fs::exists(path) ? read_file(path) : std::string();
}

// The "eos_token_id" of a JSON file, a number or a list; nothing when it has none.
std::vector<int32_t> end_ids_of(const std::string& text, const std::string& where) {
  check_json_depth(text, where);
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

// generation_config.json: the model's own settings with the tokens that end a text; empty without either.
std::string generation_config_of(const ModelExtras& extras) {
  auto json = nlohmann::ordered_json::parse(extras.generation_config, nullptr, false);
  if (!json.is_object()) json = nlohmann::ordered_json::object();
  if (!extras.end_of_text.empty()) json["eos_token_id"] = extras.end_of_text;
  return json.empty() ? std::string() : json.dump(2) + "\n";
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
  const std::string extension = path.extension().string();
  check_input(extension != ".bin" && extension != ".pt" && extension != ".pth" && extension != ".ckpt",
              "{}: pickled files can run any program and are not read: load the model in transformers and "
              "save_pretrained() it, which writes safetensors",
              path.string());
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
      description.generation_config = reader.read_file(kGenerationConfigFile);
      description.end_of_text = end_ids_of(description.generation_config, kGenerationConfigFile);
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
  description.generation_config = optional_file(path / kGenerationConfigFile);
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

LoadedModel::LoadedModel(const ModelDescription& description, DType dtype, const ExecContext& exec,
                         WeightForm form)
    : model_(std::make_unique<Transformer>(description.config)) {
  model_->walk([this](Parameter& parameter) { all_parameters_.push_back(&parameter); });
  const auto walk = [this](const ParameterVisitor& visitor) { model_->walk(visitor); };
  const bool as_stored = form == WeightForm::as_stored && dtype == DType::f32;
  const auto allocate = [&] {
    parameters_ = std::make_unique<ParameterBuffers>(walk, dtype, arena_, nullptr);
  };
  if (description.kind == ModelFileKind::gguf) {
    gguf_ = std::make_unique<GgufFile>(description.directory);
    if (as_stored) encode_gguf(*gguf_, description.config, walk, encoded_);
    allocate();
    load_gguf(*gguf_, description.config, *parameters_, exec);
    if (encoded_.empty()) gguf_.reset();
    return;
  }
  if (description.kind == ModelFileKind::hugging_face) {
    hugging_face_ = std::make_unique<HuggingFaceWeights>(description.directory, description.config);
    if (as_stored) hugging_face_->encode(walk, encoded_);
    allocate();
    hugging_face_->load(*parameters_, exec);
    if (encoded_.empty()) hugging_face_.reset();
    return;
  }
  checkpoint_ = std::make_unique<CheckpointReader>(description.directory);
  const auto take = [&](const Parameter& parameter) {
    const TensorView from = checkpoint_->tensor(parameter.name);
    check_input(from.shape() == parameter.shape, "{}: tensor {} is {}; the model needs {}",
                description.directory.string(), parameter.name, to_string(from.shape()),
                to_string(parameter.shape));
    return from;
  };
  if (as_stored) {
    walk([&](Parameter& parameter) {
      const StoredTensor whole{.name = parameter.name, .rows = parameter.shape[0]};
      if (!EncodedWeights::serves(parameter, {&whole, 1})) return;
      const TensorView from = take(parameter);
      EncodedMatrix& matrix = encoded_.add(parameter);
      EncodedWeights::append(matrix, whole, from.raw(), row_code(from.dtype()));
      EncodedWeights::finish(matrix, parameter);
    });
  }
  allocate();
  for (const ParameterSlot& slot : parameters_->slots()) {
    convert(exec, take(*slot.parameter), slot.parameter->value.slice(0, slot.parameter->shape[0]));
  }
  if (encoded_.empty()) checkpoint_.reset();
}

LoadedModel::~LoadedModel() = default;

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
  struct Planned {
    const Parameter* parameter;
    int64_t first;
    StoredTensor tensor;
  };
  std::vector<Planned> planned;
  for (const Parameter* parameter : loaded.all_parameters()) {
    int64_t first = 0;
    for (StoredTensor& tensor : hugging_face_tensors(target, config, *parameter)) {
      plan.add(tensor.name, dtype, tensor.shape_for(parameter->shape));
      const int64_t rows = tensor.rows;
      planned.push_back({parameter, first, std::move(tensor)});
      first += rows;
    }
  }
  const fs::path partial = directory / "model.safetensors.partial";
  SafetensorsWriter writer(partial, std::move(plan));
  Arena scratch("conversion");
  const ExecContext exec{scratch, default_threads()};
  for (const Planned& item : planned) {
    const StoredRows stored(*item.parameter, item.first, item.tensor);
    for_each_run(exec, stored, [&](int64_t rows, const float* values) {
      ArenaScope scope(scratch);
      const Shape shape{rows * stored.columns()};
      const TensorView to = scratch.allocate(dtype, shape);
      convert(exec, TensorView(const_cast<float*>(values), DType::f32, shape), to);
      writer.write(item.tensor.name, to.raw(), to.bytes());
    });
  }
  writer.finish();
  fs::rename(partial, directory / "model.safetensors");
  if (!extras.tokenizer_json.empty()) write_file_atomic(directory / "tokenizer.json", extras.tokenizer_json);
  const std::string generation_config = generation_config_of(extras);
  if (!generation_config.empty()) write_file_atomic(directory / kGenerationConfigFile, generation_config);
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
  const std::string generation_config = generation_config_of(extras);
  if (!generation_config.empty()) writer.write_file(kGenerationConfigFile, generation_config);
  writer.commit(0, state_json);
}

}  // namespace megalith
