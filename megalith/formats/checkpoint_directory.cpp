#include "megalith/formats/checkpoint_directory.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "megalith/base/error.h"

namespace megalith {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;
constexpr const char* kManifest = "manifest.json";

std::string checksum(const void* data, size_t bytes) {
  return fmt::format("xxh3:{:016x}", static_cast<uint64_t>(XXH3_64bits(data, bytes)));
}

template <class T>
T field(const Json& object, const char* key, const std::string& where) {
  check_input(object.is_object() && object.contains(key), "{}: \"{}\" is missing", where, key);
  try {
    return object.at(key).get<T>();
  } catch (const Json::exception&) {
    fail_input("{}: \"{}\" has the wrong type", where, key);
  }
}

// File names come from a file: they must stay inside the directory.
void check_file_name(const std::string& name, const std::string& where) {
  check_input(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                  name.find('\0') == std::string::npos,
              "{}: \"{}\" is not a file name", where, name);
}

}  // namespace

struct CheckpointWriter::Record {
  std::string name;
  uint64_t bytes;
  std::string checksum;
};

CheckpointWriter::CheckpointWriter(const fs::path& directory) : final_(directory), partial_(directory) {
  partial_ += ".partial";
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  std::error_code code;
  fs::create_directories(partial_, code);
  check(!code, "cannot create {}: {}", partial_.string(), code.message());
}

CheckpointWriter::~CheckpointWriter() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void CheckpointWriter::write_tensors(const std::string& file, const std::vector<CheckpointTensor>& tensors) {
  SafetensorsPlan plan;
  for (const CheckpointTensor& tensor : tensors)
    plan.add(tensor.name, tensor.view.dtype(), tensor.view.shape());
  SafetensorsWriter writer(partial_ / file, std::move(plan));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& view = tensors[i].view;
    const SafetensorsEntry& entry = writer.plan().entries[i];
    writer.write(tensors[i].name, view.raw(), view.bytes());
    const Json record = {{"name", entry.name},    {"dtype", std::string(name(entry.dtype))},
                         {"shape", entry.shape},  {"file", file},
                         {"offset", entry.begin}, {"checksum", checksum(view.raw(), view.bytes())}};
    if (!tensor_records_.empty()) tensor_records_ += ",\n    ";
    tensor_records_ += record.dump();
  }
  writer.finish();
  files_.push_back({file, writer.bytes_written(), ""});
}

void CheckpointWriter::write_file(const std::string& file, std::string_view bytes) {
  OutputFile out(partial_ / file);
  out.write(bytes);
  out.sync();
  out.close();
  files_.push_back({file, bytes.size(), checksum(bytes.data(), bytes.size())});
}

void CheckpointWriter::commit(int64_t step, const std::string& state) {
  Json files = Json::array();
  for (const Record& record : files_) {
    Json entry = {{"name", record.name}, {"bytes", record.bytes}};
    if (!record.checksum.empty()) entry["checksum"] = record.checksum;
    files.push_back(std::move(entry));
  }
  std::string manifest = fmt::format(
      "{{\n  \"format\": \"megalith-checkpoint\",\n  \"version\": {},\n  \"step\": {},\n  \"state\": {},\n  "
      "\"files\": {},\n"
      "  \"tensors\": [\n    {}\n  ]\n}}\n",
      kFormatVersion, step, state, files.dump(), tensor_records_);
  OutputFile out(partial_ / kManifest);
  out.write(manifest);
  out.sync();
  out.close();
  sync_directory(partial_);
  std::error_code code;
  // A checkpoint of the same step is moved aside first: rename() does not replace a directory that is not
  // empty.
  fs::path old = final_;
  old += ".old.partial";
  std::error_code ignored;
  fs::remove_all(old, ignored);
  if (fs::exists(final_)) {
    fs::rename(final_, old, code);
    check(!code, "cannot move {} aside: {}", final_.string(), code.message());
  }
  fs::rename(partial_, final_, code);
  check(!code, "cannot rename {} to {}: {}", partial_.string(), final_.string(), code.message());
  committed_ = true;
  sync_directory(final_.parent_path());
  fs::remove_all(old, ignored);
}

CheckpointReader::CheckpointReader(const fs::path& directory) : directory_(directory) {
  const std::string where = (directory / kManifest).string();
  const std::string text = megalith::read_file(directory / kManifest);
  const Json root = Json::parse(text, nullptr, false);
  check_input(!root.is_discarded(), "{}: not valid JSON (cut or damaged)", where);
  check_input(field<std::string>(root, "format", where) == "megalith-checkpoint",
              "{}: not a Megalith checkpoint", where);
  const int version = field<int>(root, "version", where);
  check_input(version == kFormatVersion, "{}: format version {} is not known to this program, which reads {}",
              where, version, kFormatVersion);
  step_ = field<int64_t>(root, "step", where);
  check_input(root.contains("state") && root["state"].is_object(), "{}: \"state\" is missing", where);
  state_ = root["state"].dump();
  check_input(root.contains("files") && root["files"].is_array() && root.contains("tensors") &&
                  root["tensors"].is_array(),
              "{}: \"files\" or \"tensors\" is missing", where);
  for (const Json& entry : root["files"]) {
    const std::string name = field<std::string>(entry, "name", where);
    check_file_name(name, where);
    FileRecord record;
    record.bytes = field<uint64_t>(entry, "bytes", where);
    if (entry.contains("checksum")) record.checksum = field<std::string>(entry, "checksum", where);
    std::error_code code;
    const uint64_t size = fs::file_size(directory / name, code);
    check_input(!code, "{}: {} is missing", directory.string(), name);
    check_input(size == record.bytes, "{}: {} has {} bytes; the manifest says {}", directory.string(), name,
                size, record.bytes);
    files_[name] = record;
  }
  for (const Json& entry : root["tensors"]) {
    TensorRecord record;
    const std::string name = field<std::string>(entry, "name", where);
    record.file = field<std::string>(entry, "file", where);
    record.dtype = field<std::string>(entry, "dtype", where);
    record.checksum = field<std::string>(entry, "checksum", where);
    record.shape = field<std::vector<int64_t>>(entry, "shape", where);
    check_input(files_.contains(record.file), "{}: tensor {} is in {}, which is not listed", where, name,
                record.file);
    check_input(tensors_.emplace(name, record).second, "{}: tensor {} is listed twice", where, name);
  }
}

bool CheckpointReader::has_file(const std::string& file) const {
  return files_.contains(file);
}

std::string CheckpointReader::read_file(const std::string& file) const {
  const auto found = files_.find(file);
  check_input(found != files_.end(), "{}: {} is not part of this checkpoint", directory_.string(), file);
  std::string bytes = megalith::read_file(directory_ / file);
  check_input(
      found->second.checksum.empty() || checksum(bytes.data(), bytes.size()) == found->second.checksum,
      "{}: {} is damaged: its checksum differs from the manifest's", directory_.string(), file);
  return bytes;
}

std::vector<std::string> CheckpointReader::tensor_names() const {
  std::vector<std::string> names;
  for (const auto& [name, record] : tensors_) names.push_back(name);
  return names;
}

const SafetensorsFile& CheckpointReader::shard(const std::string& file) const {
  auto& slot = shards_[file];
  if (slot == nullptr) slot = std::make_unique<SafetensorsFile>(directory_ / file);
  return *slot;
}

TensorView CheckpointReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  check_input(found != tensors_.end(), "{}: there is no tensor {}", directory_.string(), name);
  const TensorRecord& record = found->second;
  const SafetensorsFile& file = shard(record.file);
  const SafetensorsEntry* entry = file.find(name);
  check_input(entry != nullptr, "{}: {} lacks tensor {}", directory_.string(), record.file, name);
  check_input(megalith::name(entry->dtype) == record.dtype && entry->shape == record.shape,
              "{}: tensor {} in {} has another type or shape than the manifest says", directory_.string(),
              name, record.file);
  const auto bytes = file.bytes(*entry);
  check_input(checksum(bytes.data(), bytes.size()) == record.checksum,
              "{}: tensor {} in {} is damaged: its checksum differs from the manifest's", directory_.string(),
              name, record.file);
  return file.view(*entry);
}

void CheckpointReader::verify() const {
  for (const auto& [name, record] : files_) {
    if (!record.checksum.empty()) read_file(name);
  }
  for (const auto& [name, record] : tensors_) tensor(name);
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& run) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator entry(run / "checkpoints", code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("step-") || name.find_first_not_of("0123456789", 5) != std::string::npos ||
        name.size() < 6 || name.size() > 20) {
      continue;
    }
    if (fs::exists(entry->path() / kManifest)) found.emplace_back(std::stoll(name.substr(5)), entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<fs::path> find_checkpoint(const fs::path& path) {
  if (fs::exists(path / kManifest)) return path;
  const auto checkpoints = list_checkpoints(path);
  if (!checkpoints.empty()) return checkpoints.back().second;
  return std::nullopt;
}

}  // namespace megalith
