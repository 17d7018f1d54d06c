#include "megalith/train/checkpoint.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/comm/agreement.h"
#include "megalith/model/model_files.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstMoment = "first_moment/";
constexpr const char* kSecondMoment = "second_moment/";

// Calls work(parameter, first, part of `owned`) for the local elements from `first` on of every parameter in
// `range` of the flat buffers, without vocabulary padding. `owned` begins at `origin`.
template <class Work>
void for_parts(const ParameterBuffers& parameters, PartRange range, TensorView owned, int64_t origin,
               Work&& work) {
  if (owned.empty()) return;
  for (const ParameterSlot& slot : parameters.slots()) {
    const PartRange part =
        intersection({slot.offset, slot.offset + slot.parameter->local_shape().elements()}, range);
    if (part.size() == 0) continue;
    work(*slot.parameter, part.begin - slot.offset, owned.slice(part.begin - origin, part.end - origin));
  }
}

// What this rank writes: not what another stands for.
std::vector<CheckpointTensor> named_parts(const ParameterBuffers& parameters, PartRange range,
                                          TensorView owned, int64_t origin, const char* prefix) {
  std::vector<CheckpointTensor> tensors;
  for_parts(parameters, range, owned, origin,
            [&](const Parameter& parameter, int64_t first, TensorView part) {
              if (parameter.is_copy) return;
              CheckpointTensor tensor(prefix + parameter.name, part, parameter.shape, parameter.slice, first);
              if (tensor.whole()) tensor.view = part.reshape(parameter.shape);
              tensors.push_back(std::move(tensor));
            });
  return tensors;
}

void load_parts(const CheckpointReader& reader, const ParameterBuffers& parameters, PartRange range,
                TensorView owned, const char* prefix) {
  for_parts(parameters, range, owned, range.begin,
            [&](const Parameter& parameter, int64_t first, TensorView part) {
              reader.read(prefix + parameter.name, parameter.shape,
                          {parameter.slice, first, first + part.elements()}, part.span<float>());
            });
}

// Shard names of one rank: without a number when there is one.
std::string shard_name(const char* name, const Communicator& ranks) {
  if (ranks.size() == 1) return fmt::format("{}.safetensors", name);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", name, ranks.rank() + 1, ranks.size());
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
                     const std::string& tokenizer_json, const std::map<std::string, std::string>& other_files,
                     ParallelGroups& groups) {
  Communicator& ranks = groups.world;
  const fs::path directory = run / "checkpoints" / checkpoint_name(state.step);
  const bool first = ranks.rank() == 0;
  std::optional<CheckpointWriter> writer;
  agree(ranks, [&] {
    if (first) writer.emplace(directory);
  });
  // Each rank writes its part of everything, whether it owns more or not.
  const PartRange part = part_range(parameters.elements(), groups.place.data, groups.grid.data());
  const int64_t origin = optimizer.range().begin;
  agree(ranks, [&] {
    if (!first) writer.emplace(directory, true);
    writer->write_tensors(shard_name("model", ranks),
                          named_parts(parameters, part, optimizer.master(), origin, ""));
    std::vector<CheckpointTensor> moments =
        named_parts(parameters, part, optimizer.first_moment(), origin, kFirstMoment);
    for (CheckpointTensor& tensor :
         named_parts(parameters, part, optimizer.second_moment(), origin, kSecondMoment)) {
      moments.push_back(std::move(tensor));
    }
    writer->write_tensors(shard_name("optimizer", ranks), moments);
    if (!first) return;
    writer->write_file("recipe.toml", recipe.to_toml());
    writer->write_file("model.toml", model_config_to_toml(recipe.model));
    if (!tokenizer_json.empty()) writer->write_file("tokenizer.json", tokenizer_json);
    for (const auto& [name, content] : other_files) writer->write_file(name, content);
  });
  const std::vector<std::string> records = ranks.gather_texts(first ? std::string() : writer->records());
  agree(ranks, [&] {
    if (!first) return;
    for (size_t rank = 1; rank < records.size(); ++rank) writer->add_records(records[rank]);
    writer->commit(state.step, state.to_json());
    remove_old_checkpoints(run, recipe.checkpoint);
  });
}

TrainingState load_checkpoint(const CheckpointReader& reader, ParameterBuffers& parameters,
                              Optimizer& optimizer) {
  const PartRange range = optimizer.range();
  load_parts(reader, parameters, range, optimizer.master(), "");
  // A converted model has no moments; they begin at zero, as in a new run.
  if (reader.step() > 0) {
    load_parts(reader, parameters, range, optimizer.first_moment(), kFirstMoment);
    load_parts(reader, parameters, range, optimizer.second_moment(), kSecondMoment);
  }
  return TrainingState::from_json(reader.state(), reader.directory().string());
}

}  // namespace megalith
