#include "megalith/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "megalith/base/error.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// Collects the keys of every object on the way, since a DOM silently keeps the last of equal keys.
class DuplicateKeyFinder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    if (keys_.size() >= kMaxDepth) return false;
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) duplicate = value;
    return duplicate.empty();
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return ++arrays_ < kMaxDepth; }
  bool end_array() override {
    --arrays_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_position = position;
    return false;
  }

  std::string duplicate;
  size_t error_position = 0;

 private:
  static constexpr size_t kMaxDepth = 8;
  std::vector<std::set<std::string>> keys_;
  size_t arrays_ = 0;
};

uint64_t read_offset(const Json& value, const std::string& where) {
  check_input(value.is_number_unsigned(), "{}: data_offsets must be two whole numbers of 0 or more", where);
  return value.get<uint64_t>();
}

SafetensorsEntry read_entry(const std::string& name, const Json& value, uint64_t data_bytes,
                            const std::string& where) {
  check_input(!name.empty(), "{}: a tensor has an empty name", where);
  check_input(value.is_object() && value.size() == 3 && value.contains("dtype") && value.contains("shape") &&
                  value.contains("data_offsets"),
              "{}: an entry must hold dtype, shape and data_offsets, nothing else", where);
  SafetensorsEntry entry;
  entry.name = name;
  check_input(value["dtype"].is_string(), "{}: dtype must be a string", where);
  try {
    entry.dtype = dtype_from_name(value["dtype"].get<std::string>());
  } catch (const InputError& error) {
    fail_input("{}: {}", where, error.what());
  }
  check_input(value["shape"].is_array(), "{}: shape must be a list", where);
  uint64_t bytes = size_of(entry.dtype);
  for (const Json& dimension : value["shape"]) {
    check_input(dimension.is_number_unsigned(), "{}: shape must hold whole numbers of 0 or more", where);
    const uint64_t size = dimension.get<uint64_t>();
    check_input(size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                "{}: dimension {} is too large", where, size);
    check_input(size == 0 || bytes <= std::numeric_limits<uint64_t>::max() / size,
                "{}: the shape's number of bytes overflows 64 bits", where);
    bytes *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  const Json& offsets = value["data_offsets"];
  check_input(offsets.is_array() && offsets.size() == 2, "{}: data_offsets must be two numbers", where);
  entry.begin = read_offset(offsets[0], where);
  entry.end = read_offset(offsets[1], where);
  check_input(entry.begin <= entry.end && entry.end <= data_bytes,
              "{}: data_offsets [{}, {}] lie outside the file's {} data bytes", where, entry.begin, entry.end,
              data_bytes);
  check_input(entry.end - entry.begin == bytes, "{}: data_offsets span {} bytes; dtype and shape need {}",
              where, entry.end - entry.begin, bytes);
  return entry;
}

}  // namespace

int64_t SafetensorsEntry::elements() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string name = path.string();
  check_input(file_.size() >= 8, "{}: {} bytes are too few for a safetensors file", name, file_.size());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.data(), 8);
  check_input(header_bytes <= kMaxHeaderBytes, "{}: the header claims {} bytes; at most {} are read", name,
              header_bytes, kMaxHeaderBytes);
  check_input(header_bytes <= file_.size() - 8,
              "{}: the header claims {} bytes but the file has {} in all (cut?)", name, header_bytes,
              file_.size());
  const std::string_view header = file_.text().substr(8, header_bytes);
  DuplicateKeyFinder finder;
  if (!Json::sax_parse(header, &finder)) {
    check_input(finder.duplicate.empty(), "{}: the name \"{}\" appears twice in the header", name,
                finder.duplicate);
    fail_input("{}: the header is not the JSON it should be, near byte {}", name, 8 + finder.error_position);
  }
  const Json root = Json::parse(header, nullptr, false);
  check_input(root.is_object(), "{}: the header is not a JSON object", name);
  data_begin_ = 8 + header_bytes;
  const uint64_t data_bytes = file_.size() - data_begin_;
  for (const auto& [key, value] : root.items()) {
    if (key == "__metadata__") {
      check_input(value.is_object(), "{}: __metadata__ must be an object of strings", name);
      for (const auto& [metadata_key, text] : value.items()) {
        check_input(text.is_string(), "{}: __metadata__ \"{}\" must be a string", name, metadata_key);
        metadata_[metadata_key] = text.get<std::string>();
      }
      continue;
    }
    entries_.push_back(read_entry(key, value, data_bytes, fmt::format("{}: tensor \"{}\"", name, key)));
  }
  std::sort(entries_.begin(), entries_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries_) {
    check_input(entry.begin == at,
                "{}: tensor \"{}\" begins at {} where {} is expected: tensors overlap or leave a hole", name,
                entry.name, entry.begin, at);
    at = entry.end;
  }
  check_input(at == data_bytes, "{}: the tensors end at byte {} of {} data bytes", name, at, data_bytes);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const SafetensorsEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(data_begin_ + entry.begin, entry.bytes());
}

TensorView SafetensorsFile::view(const SafetensorsEntry& entry) const {
  check_input(entry.shape.size() <= Shape::kMaxRank,
              "{}: tensor \"{}\" has {} dimensions; at most {} are supported", path().string(), entry.name,
              entry.shape.size(), Shape::kMaxRank);
  Shape shape;
  for (const int64_t dimension : entry.shape) shape.push_back(dimension);
  // Views are not const; the map is read-only, so a write through one faults at once.
  return {const_cast<std::byte*>(bytes(entry).data()), entry.dtype, shape};
}

void SafetensorsPlan::add(std::string name, DType dtype, const Shape& shape) {
  SafetensorsEntry entry;
  entry.name = std::move(name);
  entry.dtype = dtype;
  for (int axis = 0; axis < shape.rank(); ++axis) entry.shape.push_back(shape[axis]);
  entry.begin = entries.empty() ? 0 : entries.back().end;
  entry.end = entry.begin + static_cast<uint64_t>(shape.elements()) * size_of(dtype);
  entries.push_back(std::move(entry));
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, SafetensorsPlan plan)
    : plan_(std::move(plan)), file_(path) {
  Json header = Json::object();
  if (!plan_.metadata.empty()) header["__metadata__"] = plan_.metadata;
  for (const SafetensorsEntry& entry : plan_.entries) {
    check(!header.contains(entry.name), "{}: tensor \"{}\" is planned twice", path.string(), entry.name);
    header[entry.name] = {{"dtype", std::string(name(entry.dtype))},
                          {"shape", entry.shape},
                          {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // The data begins on an 8-byte boundary.
  const uint64_t size = text.size();
  file_.write(&size, 8);
  file_.write(text);
}

void SafetensorsWriter::write(std::string_view name, const void* data, uint64_t bytes) {
  check(next_ < plan_.entries.size() && plan_.entries[next_].name == name &&
            bytes <= plan_.entries[next_].bytes() - written_,
        "{}: {} bytes of tensor \"{}\" do not come next in the plan", file_.path().string(), bytes, name);
  file_.write(data, bytes);
  written_ += bytes;
  if (written_ < plan_.entries[next_].bytes()) return;
  written_ = 0;
  ++next_;
}

void SafetensorsWriter::finish() {
  check(next_ == plan_.entries.size(), "{}: {} of {} tensors were written", file_.path().string(), next_,
        plan_.entries.size());
  file_.sync();
  file_.close();
}

}  // namespace megalith
