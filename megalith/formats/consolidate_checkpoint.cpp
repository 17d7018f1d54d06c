#include "megalith/formats/consolidate_checkpoint.h"

#include <map>
#include <string>
#include <vector>

#include "megalith/base/error.h"

namespace megalith {

namespace {

constexpr std::string_view kExtension = ".safetensors";

// "model-00002-of-00004.safetensors" -> "model.safetensors".
std::string whole_name(const std::string& shard) {
  const size_t number = shard.find("-of-");
  if (number == std::string::npos) return shard;
  const size_t dash = shard.rfind('-', number - 1);
  return shard.substr(0, dash) + std::string(kExtension);
}

}  // namespace

void consolidate_checkpoint(const CheckpointReader& reader, const std::filesystem::path& directory) {
  std::map<std::string, std::vector<CheckpointTensor>> files;
  for (const std::string& name : reader.tensor_names()) {
    const TensorView without_bytes(nullptr, reader.dtype(name), reader.shape(name));
    files[whole_name(reader.files_of(name).front())].emplace_back(name, without_bytes);
  }
  CheckpointWriter writer(directory);
  for (const auto& [file, tensors] : files) {
    Tensor tensor;
    writer.write_tensors(file, tensors, [&, &all = tensors](size_t i) -> TensorView {
      tensor = reader.load(all[i].name);
      return tensor;
    });
  }
  for (const std::string& file : reader.plain_files()) writer.write_file(file, reader.read_file(file));
  writer.commit(reader.step(), reader.state());
}

}  // namespace megalith
