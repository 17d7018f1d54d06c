#include "megalith/formats/checkpoint_directory.h"

#include <fcntl.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "megalith/base/checksum.h"
#include "megalith/base/error.h"
#include "megalith/base/json_depth.h"

namespace megalith {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Version 2 has slices of tensors; a checkpoint without any is of version 1.
constexpr int kFormatVersion = 2;
constexpr const char* kManifest = "manifest.json";

template <class T>
T field(const Json& object, const char* key, const std::string& where) {
  check_input(object.is_object() && object.contains(key), "{}: \"{}\" is missing", where, key);
  try {
    return object.at(key).get<T>();
  } catch (const Json::exception&) {
    fail_input("{}: \"{}\" has the wrong type", where, key);
  }
}

fs::path without_trailing_slash(const fs::path& directory) {
  const fs::path normal = directory.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// File names come from a file: they must stay inside the directory.
void check_file_name(const std::string& name, const std::string& where) {
  check_input(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                  name.find('\0') == std::string::npos,
              "{}: \"{}\" is not a file name", where, name);
}

TensorSlice slice_from(const Json& entry, const Shape& shape, const std::string& where,
                       const std::string& tensor) {
  TensorSlice slice;
  slice.axis = field<int>(entry, "axis", where);
  check_input(shape.rank() <= 2 && slice.axis >= 0 && slice.axis < shape.rank(),
              "{}: a part of tensor {} is cut along axis {} of {}", where, tensor, slice.axis,
              to_string(shape));
  int64_t at = 0;
  for (const auto& range : field<std::vector<std::array<int64_t, 2>>>(entry, "ranges", where)) {
    check_input(range[0] >= at && range[1] >= range[0] && range[1] <= shape[slice.axis],
                "{}: the ranges of a part of tensor {} do not rise within {}", where, tensor,
                to_string(shape));
    slice.ranges.push_back({range[0], range[1]});
    at = range[1];
  }
  return slice;
}

}  // namespace

struct CheckpointWriter::Record {
  std::string name;
  uint64_t bytes;
  std::string checksum;
};

CheckpointWriter::CheckpointWriter(const fs::path& directory, bool joins)
    : final_(without_trailing_slash(directory)), partial_(final_), joins_(joins) {
  partial_ += ".partial";
  if (joins) return;
  // Only a checkpoint gives way to a checkpoint.
  check_input(!fs::exists(final_) || fs::exists(final_ / kManifest) ||
                  (fs::is_directory(final_) && fs::is_empty(final_)),
              "{} is there already and is not a checkpoint; choose another directory", final_.string());
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  std::error_code code;
  fs::create_directories(partial_, code);
  check(!code, "cannot create {}: {}", partial_.string(), code.message());
}

CheckpointWriter::~CheckpointWriter() {
  if (committed_ || joins_) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void CheckpointWriter::write_tensors(const std::string& file, const std::vector<CheckpointTensor>& tensors) {
  write_tensors(file, tensors, [&](size_t i) { return tensors[i].view; });
}

void CheckpointWriter::write_tensors(const std::string& file, const std::vector<CheckpointTensor>& tensors,
                                     const std::function<TensorView(size_t)>& bytes_of) {
  SafetensorsPlan plan;
  for (const CheckpointTensor& tensor : tensors)
    plan.add(tensor.name, tensor.view.dtype(), tensor.view.shape());
  SafetensorsWriter writer(partial_ / file, std::move(plan));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView view = bytes_of(i);
    const SafetensorsEntry& entry = writer.plan().entries[i];
    writer.write(tensors[i].name, view.raw(), view.bytes());
    std::vector<int64_t> shape;
    for (int axis = 0; axis < tensors[i].shape.rank(); ++axis) shape.push_back(tensors[i].shape[axis]);
    Json record = {{"name", entry.name},    {"dtype", std::string(name(entry.dtype))},
                   {"shape", shape},        {"file", file},
                   {"offset", entry.begin}, {"checksum", checksum(view.raw(), view.bytes())}};
    if (!tensors[i].whole()) {
      record["first_element"] = tensors[i].begin;
      record["elements"] = view.elements();
    }
    if (!tensors[i].slice.whole()) {
      record["axis"] = tensors[i].slice.axis;
      record["ranges"] = Json::array();
      for (const IndexRange& range : tensors[i].slice.ranges)
        record["ranges"].push_back({range.begin, range.end});
    }
    tensor_records_.push_back(record.dump());
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

std::string CheckpointWriter::records() const {
  Json json = {{"files", Json::array()}, {"tensors", Json::array()}};
  for (const Record& record : files_) json["files"].push_back({record.name, record.bytes, record.checksum});
  for (const std::string& record : tensor_records_) json["tensors"].push_back(record);
  return json.dump();
}

void CheckpointWriter::add_records(const std::string& records) {
  const Json json = Json::parse(records);
  for (const Json& file : json["files"]) {
    files_.push_back({file[0].get<std::string>(), file[1].get<uint64_t>(), file[2].get<std::string>()});
  }
  for (const Json& tensor : json["tensors"]) tensor_records_.push_back(tensor.get<std::string>());
}

void CheckpointWriter::commit(int64_t step, const std::string& state) {
  Json files = Json::array();
  for (const Record& record : files_) {
    Json entry = {{"name", record.name}, {"bytes", record.bytes}};
    if (!record.checksum.empty()) entry["checksum"] = record.checksum;
    files.push_back(std::move(entry));
  }
  const bool sliced =
      std::any_of(tensor_records_.begin(), tensor_records_.end(),
                  [](const std::string& record) { return Json::parse(record).contains("axis"); });
  std::string manifest = fmt::format(
      "{{\n  \"format\": \"megalith-checkpoint\",\n  \"version\": {},\n  \"step\": {},\n  \"state\": {},\n  "
      "\"files\": {},\n"
      "  \"tensors\": [\n    {}\n  ]\n}}\n",
      sliced ? kFormatVersion : 1, step, state, files.dump(), fmt::join(tensor_records_, ",\n    "));
  OutputFile out(partial_ / kManifest);
  out.write(manifest);
  out.sync();
  out.close();
  sync_directory(partial_);
  if (fs::exists(final_)) {
    // A checkpoint of the same step changes places with the new one in one step, so that a kill leaves one of
    // them there.
    check(::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) == 0,
          "cannot exchange {} and {}: {}", partial_.string(), final_.string(), std::strerror(errno));
  } else {
    std::error_code code;
    fs::rename(partial_, final_, code);
    check(!code, "cannot rename {} to {}: {}", partial_.string(), final_.string(), code.message());
  }
  committed_ = true;
  sync_directory(final_.parent_path());
  std::error_code ignored;
  fs::remove_all(partial_, ignored);  // the one that was replaced
}

CheckpointReader::CheckpointReader(const fs::path& directory) : directory_(directory) {
  const std::string where = (directory / kManifest).string();
  const std::string text = megalith::read_file(directory / kManifest);
  check_json_depth(text, where);
  const Json root = Json::parse(text, nullptr, false);
  check_input(!root.is_discarded(), "{}: not valid JSON (cut or damaged)", where);
  check_input(field<std::string>(root, "format", where) == "megalith-checkpoint",
              "{}: not a Megalith checkpoint", where);
  const int version = field<int>(root, "version", where);
  check_input(version >= 1 && version <= kFormatVersion,
              "{}: format version {} is not known to this program, which reads 1 to {}", where, version,
              kFormatVersion);
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
    const std::string name = field<std::string>(entry, "name", where);
    TensorRecord given;
    try {
      given.dtype = dtype_from_name(field<std::string>(entry, "dtype", where));
    } catch (const InputError& error) {
      fail_input("{}: tensor {}: {}", where, name, error.what());
    }
    given.shape = field<std::vector<int64_t>>(entry, "shape", where);
    Piece piece;
    piece.file = field<std::string>(entry, "file", where);
    piece.checksum = field<std::string>(entry, "checksum", where);
    const Shape shape = given.view_shape(where);
    if (entry.contains("axis")) piece.part.slice = slice_from(entry, shape, where, name);
    piece.part.end = piece.part.slice.local_shape(shape).elements();
    if (entry.contains("first_element")) {
      piece.part.begin = field<int64_t>(entry, "first_element", where);
      const int64_t elements = field<int64_t>(entry, "elements", where);
      check_input(piece.part.begin >= 0 && elements >= 0 && elements <= piece.part.end - piece.part.begin,
                  "{}: a part of tensor {} exceeds it", where, name);
      piece.part.end = piece.part.begin + elements;
    }
    add_piece(name, given, std::move(piece), where);
  }
  for (auto& [name, record] : tensors_) check_complete(name, record, where);
}

void CheckpointReader::add_piece(const std::string& name, const TensorRecord& given, Piece piece,
                                 const std::string& where) {
  check_input(files_.contains(piece.file), "{}: tensor {} is in {}, which is not listed", where, name,
              piece.file);
  const auto [found, is_new] = tensors_.emplace(name, given);
  check_input(is_new || (found->second.dtype == given.dtype && found->second.shape == given.shape),
              "{}: parts of tensor {} disagree about its type or shape", where, name);
  found->second.pieces.push_back(std::move(piece));
}

// The parts must make up their slices, and the slices the tensor.
void CheckpointReader::check_complete(const std::string& name, TensorRecord& record,
                                      const std::string& where) {
  const auto order = [](const Piece& piece) {
    std::vector<int64_t> key{piece.part.slice.axis};
    for (const IndexRange& range : piece.part.slice.ranges) key.insert(key.end(), {range.begin, range.end});
    return key;
  };
  std::sort(record.pieces.begin(), record.pieces.end(), [&](const Piece& a, const Piece& b) {
    const auto left = order(a), right = order(b);
    return left != right ? left < right : a.part.begin < b.part.begin;
  });
  const Shape shape = record.view_shape(where);
  const int axis = record.pieces[0].part.slice.axis;
  std::vector<IndexRange> ranges;
  for (size_t i = 0; i < record.pieces.size();) {
    const TensorSlice& slice = record.pieces[i].part.slice;
    check_input(slice.axis == axis, "{}: the parts of tensor {} are cut in several ways", where, name);
    ranges.insert(ranges.end(), slice.ranges.begin(), slice.ranges.end());
    int64_t at = 0;
    for (; i < record.pieces.size() && record.pieces[i].part.slice == slice; ++i) {
      const SlicePart& part = record.pieces[i].part;
      check_input(part.begin == at, "{}: the parts of tensor {} overlap or leave a hole at element {}", where,
                  name, at);
      at = part.end;
    }
    check_input(at == slice.local_shape(shape).elements(), "{}: the parts of tensor {} end at element {}",
                where, name, at);
  }
  if (axis < 0) return;
  std::sort(ranges.begin(), ranges.end(), [](const IndexRange& a, const IndexRange& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t at = 0;
  for (const IndexRange& range : ranges) {
    if (range.begin == range.end) continue;
    check_input(range.begin == at, "{}: the slices of tensor {} overlap or leave a hole at {}", where, name,
                at);
    at = range.end;
  }
  check_input(at == shape[axis], "{}: the slices of tensor {} end at {}", where, name, at);
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

Shape CheckpointReader::TensorRecord::view_shape(const std::string& where) const {
  check_input(shape.size() <= Shape::kMaxRank, "{}: a tensor has {} dimensions; at most {} are supported",
              where, shape.size(), Shape::kMaxRank);
  Shape result;
  constexpr int64_t kMaxElements = int64_t{1} << 50;
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    check_input(dimension >= 0 && dimension <= kMaxElements &&
                    (dimension == 0 || elements <= kMaxElements / dimension),
                "{}: a tensor's shape is absurd", where);
    elements *= dimension;
    result.push_back(dimension);
  }
  return result;
}

CheckpointReader::TensorRecord& CheckpointReader::record(const std::string& name) const {
  const auto found = tensors_.find(name);
  check_input(found != tensors_.end(), "{}: there is no tensor {}", directory_.string(), name);
  return found->second;
}

// The bytes of a part, checked the first time.
TensorView CheckpointReader::piece_view(const std::string& name, const TensorRecord& record,
                                        Piece& piece) const {
  const SafetensorsFile& file = shard(piece.file);
  const SafetensorsEntry* entry = file.find(name);
  check_input(entry != nullptr, "{}: {} lacks tensor {}", directory_.string(), piece.file, name);
  const bool whole = piece.part.slice.whole() && record.pieces.size() == 1;
  const std::vector<int64_t> shape = whole ? record.shape : std::vector<int64_t>{piece.part.elements()};
  check_input(entry->dtype == record.dtype && entry->shape == shape,
              "{}: tensor {} in {} has another type or shape than the manifest says", directory_.string(),
              name, piece.file);
  if (!piece.checked) {
    const auto bytes = file.bytes(*entry);
    check_input(checksum(bytes.data(), bytes.size()) == piece.checksum,
                "{}: tensor {} in {} is damaged: its checksum differs from the manifest's",
                directory_.string(), name, piece.file);
    piece.checked = true;
  }
  return file.view(*entry);
}

TensorView CheckpointReader::tensor(const std::string& name) const {
  TensorRecord& found = record(name);
  if (found.pieces.size() == 1 && found.pieces[0].part.slice.whole()) {
    return piece_view(name, found, found.pieces[0]);
  }
  if (const auto assembled = assembled_.find(name); assembled != assembled_.end()) return assembled->second;
  return assembled_.emplace(name, load(name)).first->second;
}

Tensor CheckpointReader::load(const std::string& name) const {
  TensorRecord& found = record(name);
  const Shape shape = found.view_shape(directory_.string());
  // All parts are there before memory is asked for: a damaged manifest may claim any size.
  for (Piece& piece : found.pieces) piece_view(name, found, piece);
  Tensor whole(found.dtype, shape);
  char* out = static_cast<char*>(whole.view().raw());
  const size_t element = size_of(found.dtype);
  for (Piece& piece : found.pieces) {
    const char* data = static_cast<const char*>(piece_view(name, found, piece).raw());
    piece.part.slice.for_each_run(
        shape, piece.part.begin, piece.part.end, [&](int64_t local, int64_t global, int64_t count) {
          std::memcpy(out + static_cast<size_t>(global) * element,
                      data + static_cast<size_t>(local - piece.part.begin) * element,
                      static_cast<size_t>(count) * element);
        });
  }
  return whole;
}

void CheckpointReader::read(const std::string& name, const Shape& shape, const SlicePart& part,
                            std::span<float> out) const {
  TensorRecord& found = record(name);
  const Shape stored = found.view_shape(directory_.string());
  check_input(found.dtype == DType::f32 && stored == shape,
              "{}: tensor {} is {} {}; the recipe's model needs F32 {}", directory_.string(), name,
              megalith::name(found.dtype), to_string(stored), to_string(shape));
  for (Piece& piece : found.pieces) {
    const float* data = nullptr;  // A part that nothing is taken from is not read.
    for_each_common_run(shape, part, piece.part, [&](int64_t to, int64_t from, int64_t count) {
      if (data == nullptr) data = piece_view(name, found, piece).data<float>();
      std::copy(data + from, data + from + count, out.data() + to);
    });
  }
}

Shape CheckpointReader::shape(const std::string& name) const {
  return record(name).view_shape(directory_.string());
}

std::vector<std::string> CheckpointReader::files_of(const std::string& name) const {
  std::vector<std::string> files;
  for (const Piece& piece : record(name).pieces) files.push_back(piece.file);
  return files;
}

std::vector<std::string> CheckpointReader::plain_files() const {
  std::vector<std::string> names;
  for (const auto& [name, record] : files_) {
    if (!record.checksum.empty()) names.push_back(name);
  }
  return names;
}

void CheckpointReader::verify() const {
  for (const auto& [name, record] : files_) {
    if (!record.checksum.empty()) read_file(name);
  }
  for (auto& [name, record] : tensors_) {
    for (Piece& piece : record.pieces) piece_view(name, record, piece);
  }
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
