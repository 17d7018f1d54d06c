#include "megalith/train/checkpoint.h"

#include <cstring>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/model/model_files.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kFirstMoment = "first_moment/";
constexpr const char* kSecondMoment = "second_moment/";

// The rows of a flat buffer that belong to a parameter, without vocabulary padding.
TensorView stored_part(TensorView flat, const ParameterSlot& slot) {
  const Shape& shape = slot.parameter->shape;
  return flat.slice(slot.offset, slot.offset + shape.elements()).reshape(shape);
}

std::vector<CheckpointTensor> named_parts(const ParameterBuffers& parameters, TensorView flat,
                                          const char* prefix) {
  std::vector<CheckpointTensor> tensors;
  if (flat.empty()) return tensors;
  for (const ParameterSlot& slot : parameters.slots()) {
    tensors.push_back({prefix + slot.parameter->name, stored_part(flat, slot)});
  }
  return tensors;
}

void load_parts(const CheckpointReader& reader, const ParameterBuffers& parameters, TensorView flat,
                const char* prefix) {
  if (flat.empty()) return;
  for (const ParameterSlot& slot : parameters.slots()) {
    const std::string name = prefix + slot.parameter->name;
    const TensorView from = reader.tensor(name);
    check_input(from.dtype() == DType::f32 && from.shape() == slot.parameter->shape,
                "{}: tensor {} is {} {}; the recipe's model needs F32 {}", reader.directory().string(), name,
                megalith::name(from.dtype()), to_string(from.shape()), to_string(slot.parameter->shape));
    std::memcpy(stored_part(flat, slot).raw(), from.raw(), from.bytes());
  }
}

void remove_old_checkpoints(const fs::path& run, const CheckpointConfig& config) {
  const auto checkpoints = list_checkpoints(run);
  for (size_t i = 0; i + static_cast<size_t>(config.keep_last) < checkpoints.size(); ++i) {
    const auto& [step, path] = checkpoints[i];
    if (config.keep_every > 0 && step % config.keep_every == 0) continue;
    // Renamed first, so that a kill in the middle does not leave a half-removed checkpoint that looks
    // complete.
    fs::path doomed = path;
    doomed += ".partial";
    std::error_code ignored;
    fs::rename(path, doomed, ignored);
    fs::remove_all(doomed, ignored);
  }
}

}  // namespace

void save_checkpoint(const fs::path& run, const Recipe& recipe, const ParameterBuffers& parameters,
                     const Optimizer& optimizer, const TrainingState& state,
                     const std::string& tokenizer_json) {
  CheckpointWriter writer(run / "checkpoints" / checkpoint_name(state.step));
  writer.write_tensors("model.safetensors", named_parts(parameters, optimizer.master(), ""));
  std::vector<CheckpointTensor> moments = named_parts(parameters, optimizer.first_moment(), kFirstMoment);
  for (CheckpointTensor& tensor : named_parts(parameters, optimizer.second_moment(), kSecondMoment)) {
    moments.push_back(std::move(tensor));
  }
  writer.write_tensors(kOptimizerFile, moments);
  writer.write_file("recipe.toml", recipe.to_toml());
  writer.write_file("model.toml", model_config_to_toml(recipe.model));
  if (!tokenizer_json.empty()) writer.write_file("tokenizer.json", tokenizer_json);
  writer.commit(state.step, state.to_json());
  remove_old_checkpoints(run, recipe.checkpoint);
}

TrainingState load_checkpoint(const CheckpointReader& reader, ParameterBuffers& parameters,
                              Optimizer& optimizer) {
  load_parts(reader, parameters, optimizer.master(), "");
  // A converted model has no moments; they begin at zero, as in a new run.
  if (reader.has_file(kOptimizerFile) || reader.step() > 0) {
    load_parts(reader, parameters, optimizer.first_moment(), kFirstMoment);
    load_parts(reader, parameters, optimizer.second_moment(), kSecondMoment);
  }
  return TrainingState::from_json(reader.state(), reader.directory().string());
}

}  // namespace megalith
