#include "megalith/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "megalith/base/error.h"

namespace megalith {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kMaxDimensions = 4;
constexpr int kMaxNesting = 4;

uint64_t width_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::i8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::u16:
    case GgufValueType::i16:
      return 2;
    case GgufValueType::u32:
    case GgufValueType::i32:
    case GgufValueType::f32:
      return 4;
    default:
      return 8;
  }
}

template <class T>
T read_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

GgufValue number_at(GgufValueType type, const std::byte* at) {
  switch (type) {
    case GgufValueType::u8:
      return {type, uint64_t{read_at<uint8_t>(at)}};
    case GgufValueType::i8:
      return {type, int64_t{read_at<int8_t>(at)}};
    case GgufValueType::u16:
      return {type, uint64_t{read_at<uint16_t>(at)}};
    case GgufValueType::i16:
      return {type, int64_t{read_at<int16_t>(at)}};
    case GgufValueType::u32:
      return {type, uint64_t{read_at<uint32_t>(at)}};
    case GgufValueType::i32:
      return {type, int64_t{read_at<int32_t>(at)}};
    case GgufValueType::f32:
      return {type, double{read_at<float>(at)}};
    case GgufValueType::boolean:
      return {type, read_at<uint8_t>(at) != 0};
    case GgufValueType::u64:
      return {type, read_at<uint64_t>(at)};
    case GgufValueType::i64:
      return {type, read_at<int64_t>(at)};
    default:
      return {type, read_at<double>(at)};
  }
}

// Walks the bytes before the tensors. `where` says what is being read, for messages.
class Cursor {
 public:
  Cursor(const MappedFile& file) : file_(file) {}

  uint64_t position() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }

  const std::byte* take(uint64_t bytes, std::string_view where) {
    check_input(bytes <= left(), "{}: {}: {} bytes are needed at byte {}, but the file ends at {} (cut?)",
                file_.path().string(), where, bytes, at_, file_.size());
    const std::byte* begin = file_.data() + at_;
    at_ += bytes;
    return begin;
  }
  template <class T>
  T number(std::string_view where) {
    return read_at<T>(take(sizeof(T), where));
  }
  std::string_view text(std::string_view where) {
    const uint64_t length = number<uint64_t>(where);
    return {reinterpret_cast<const char*>(take(length, where)), length};
  }

  GgufValueType value_type(std::string_view where) {
    const uint32_t number_of_type = number<uint32_t>(where);
    check_input(number_of_type <= static_cast<uint32_t>(GgufValueType::f64), "{}: {}: {} is no type of value",
                file_.path().string(), where, number_of_type);
    return static_cast<GgufValueType>(number_of_type);
  }

  GgufValue value(GgufValueType type, std::string_view where, int depth) {
    if (type == GgufValueType::string) return {type, text(where)};
    if (type == GgufValueType::array) return {type, array(where, depth)};
    const std::byte* at = take(width_of(type), where);
    check_boolean(type, at, 1, where);
    return number_at(type, at);
  }

 private:
  void check_boolean(GgufValueType type, const std::byte* at, uint64_t count, std::string_view where) const {
    if (type != GgufValueType::boolean) return;
    for (uint64_t i = 0; i < count; ++i) {
      check_input(static_cast<uint8_t>(at[i]) <= 1, "{}: {}: {} is neither true (1) nor false (0)",
                  file_.path().string(), where, static_cast<uint8_t>(at[i]));
    }
  }

  GgufArray array(std::string_view where, int depth) {
    check_input(depth < kMaxNesting, "{}: {}: arrays are nested more than {} deep", file_.path().string(),
                where, kMaxNesting);
    GgufArray result;
    result.element = value_type(where);
    result.count = number<uint64_t>(where);
    // Every element takes at least this much of the file, so a count that the file cannot hold is found
    // before memory is asked for.
    const uint64_t least = result.element == GgufValueType::string  ? 8
                           : result.element == GgufValueType::array ? 12
                                                                    : width_of(result.element);
    check_input(result.count <= left() / least, "{}: {}: {} elements do not fit the {} bytes that are left",
                file_.path().string(), where, result.count, left());
    if (result.element == GgufValueType::string) {
      result.strings.reserve(result.count);
      for (uint64_t i = 0; i < result.count; ++i) result.strings.push_back(text(where));
    } else if (result.element == GgufValueType::array) {
      for (uint64_t i = 0; i < result.count; ++i) {
        result.arrays.push_back({GgufValueType::array, array(where, depth + 1)});
      }
    } else {
      result.numbers = take(result.count * width_of(result.element), where);
      check_boolean(result.element, result.numbers, result.count, where);
    }
    return result;
  }

  const MappedFile& file_;
  uint64_t at_ = 0;
};

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

GgufTensor read_tensor(Cursor& cursor, const std::string& path) {
  GgufTensor tensor;
  tensor.name = cursor.text("name of a tensor");
  check_input(!tensor.name.empty(), "{}: a tensor has an empty name", path);
  const std::string where = fmt::format("tensor \"{}\"", tensor.name);
  const uint32_t dimensions = cursor.number<uint32_t>(where);
  check_input(dimensions >= 1 && dimensions <= kMaxDimensions, "{}: {} has {} dimensions; allowed is 1 to {}",
              path, where, dimensions, kMaxDimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {
    const uint64_t size = cursor.number<uint64_t>(where);
    check_input(size > 0, "{}: {}: a dimension is zero", path, where);
    check_input(size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                "{}: {}: dimension {} is too large", path, where, size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const uint32_t type = cursor.number<uint32_t>(where);
  const GgufBlock* block = find_gguf_block(type);
  check_input(block != nullptr, "{}: {}: type {} is unknown", path, where, type);
  tensor.type = static_cast<GgufType>(type);
  tensor.offset = cursor.number<uint64_t>(where);
  check_input(tensor.shape.back() % block->elements == 0,
              "{}: {}: rows of {} elements are not whole blocks of {} ({} elements)", path, where,
              tensor.shape.back(), block->name, block->elements);
  uint64_t blocks = static_cast<uint64_t>(tensor.shape.back() / block->elements);
  uint64_t elements = static_cast<uint64_t>(tensor.shape.back());
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    const uint64_t size = static_cast<uint64_t>(tensor.shape[i]);
    check_input(size == 0 || elements <= kMost / size, "{}: {}: the number of elements overflows 64 bits",
                path, where);
    blocks *= size;
    elements *= size;
  }
  check_input(blocks <= kMost / static_cast<uint64_t>(block->bytes),
              "{}: {}: the number of bytes overflows 64 bits", path, where);
  tensor.bytes = blocks * static_cast<uint64_t>(block->bytes);
  return tensor;
}

// Offsets count from the end of the table until here; overlaps and bounds are checked on the way.
void place_tensors(std::vector<GgufTensor>& tensors, uint64_t data_begin, uint64_t alignment,
                   uint64_t file_bytes, const std::string& path) {
  std::vector<const GgufTensor*> by_offset;
  for (GgufTensor& tensor : tensors) {
    check_input(tensor.offset % alignment == 0,
                "{}: tensor \"{}\": offset {} is not a multiple of the alignment {}", path, tensor.name,
                tensor.offset, alignment);
    check_input(
        tensor.offset <= file_bytes - data_begin && tensor.bytes <= file_bytes - data_begin - tensor.offset,
        "{}: tensor \"{}\": bytes {} to {} of the data lie outside its {} bytes (cut?)", path, tensor.name,
        tensor.offset, tensor.offset + tensor.bytes, file_bytes - data_begin);
    tensor.offset += data_begin;
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor &before = *by_offset[i - 1], &after = *by_offset[i];
    check_input(before.offset + before.bytes <= after.offset, "{}: tensors \"{}\" and \"{}\" overlap", path,
                before.name, after.name);
  }
}

}  // namespace

std::string_view name(GgufValueType type) {
  static constexpr std::string_view names[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                               "int32",  "float32", "bool",   "string", "array",
                                               "uint64", "int64",   "float64"};
  return names[static_cast<size_t>(type)];
}

std::string describe(const GgufValue& value) {
  struct Writer {
    std::string operator()(uint64_t x) const { return fmt::format("{}", x); }
    std::string operator()(int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const { return fmt::format("{}", static_cast<float>(x)); }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::string_view x) const {
      constexpr size_t kMost = 60;
      std::string text;
      for (const char c : x.substr(0, kMost)) {
        text += c == '\n' ? "\\n" : static_cast<unsigned char>(c) < 32 ? " " : std::string(1, c);
      }
      return "\"" + text + (x.size() > kMost ? "...\"" : "\"");
    }
    std::string operator()(const GgufArray& array) const {
      constexpr uint64_t kMost = 4;
      std::string text = fmt::format("{} {} [", array.count, name(array.element));
      for (uint64_t i = 0; i < std::min(array.count, kMost); ++i) {
        if (i > 0) text += ", ";
        if (array.element == GgufValueType::string) {
          text += (*this)(array.strings[i]);
        } else if (array.element == GgufValueType::array) {
          text += describe(array.arrays[i]);
        } else {
          text += describe(number_at(array.element, array.numbers + i * width_of(array.element)));
        }
      }
      return text + (array.count > kMost ? ", ...]" : "]");
    }
  };
  return std::visit(Writer{}, value.value);
}

int64_t GgufTensor::elements() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  const std::string name_of_file = path.string();
  Cursor cursor(file_);
  const std::byte* magic = cursor.take(4, "the header");
  check_input(std::memcmp(magic, kMagic.data(), 4) == 0, "{}: does not begin with \"GGUF\"", name_of_file);
  version_ = cursor.number<uint32_t>("the header");
  check_input(__builtin_bswap32(version_) > 3 || version_ <= 3, "{}: big-endian GGUF files are not supported",
              name_of_file);
  check_input(version_ == 2 || version_ == 3, "{}: GGUF version {} is not supported; 2 and 3 are",
              name_of_file, version_);
  const uint64_t tensors = cursor.number<uint64_t>("the header");
  const uint64_t keys = cursor.number<uint64_t>("the header");
  constexpr uint64_t kLeastTensor = 32, kLeastKey = 13;
  check_input(tensors <= cursor.left() / kLeastTensor, "{}: {} tensors do not fit a file of {} bytes",
              name_of_file, tensors, file_.size());
  check_input(keys <= cursor.left() / kLeastKey, "{}: {} keys do not fit a file of {} bytes", name_of_file,
              keys, file_.size());
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string_view key = cursor.text("key of a value");
    check_input(!key.empty() && key.size() <= 65535, "{}: a key has {} bytes; allowed is 1 to 65535",
                name_of_file, key.size());
    check_input(key_index_.emplace(key, metadata_.size()).second, "{}: key \"{}\" appears twice",
                name_of_file, key);
    const std::string where = fmt::format("\"{}\"", key);
    const GgufValueType type = cursor.value_type(where);
    metadata_.emplace_back(key, cursor.value(type, where, 0));
  }
  uint64_t alignment = kDefaultAlignment;
  if (const auto given = integer("general.alignment")) {
    check_input(*given > 0 && *given <= (1 << 20) && std::has_single_bit(static_cast<uint64_t>(*given)),
                "{}: general.alignment = {} is not a power of two from 1 to 1048576", name_of_file, *given);
    alignment = static_cast<uint64_t>(*given);
  }
  for (uint64_t i = 0; i < tensors; ++i) tensors_.push_back(read_tensor(cursor, name_of_file));
  // The names stay where they are from here on.
  for (size_t i = 0; i < tensors_.size(); ++i) {
    check_input(tensor_index_.emplace(tensors_[i].name, i).second, "{}: tensor \"{}\" appears twice",
                name_of_file, tensors_[i].name);
  }
  if (tensors_.empty()) return;
  const uint64_t data_begin = round_up(cursor.position(), alignment);
  check_input(data_begin <= file_.size(), "{}: the file ends before its tensors (cut?)", name_of_file);
  place_tensors(tensors_, data_begin, alignment, file_.size(), name_of_file);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = key_index_.find(key);
  return found == key_index_.end() ? nullptr : &metadata_[found->second].second;
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  return file_.bytes().subspan(tensor.offset, tensor.bytes);
}

namespace {

[[noreturn]] void wrong_type(const GgufFile& file, std::string_view key, GgufValueType type,
                             const char* wanted) {
  fail_input("{}: \"{}\" is of type {}; expected {}", file.path().string(), key, name(type), wanted);
}

std::optional<int64_t> as_integer(const GgufValue& value) {
  if (const auto* x = std::get_if<uint64_t>(&value.value)) {
    if (*x > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(*x);
  }
  if (const auto* x = std::get_if<int64_t>(&value.value)) return *x;
  return std::nullopt;
}

std::optional<double> as_real(const GgufValue& value) {
  if (const auto* x = std::get_if<double>(&value.value)) return *x;
  if (const auto x = as_integer(value)) return static_cast<double>(*x);
  return std::nullopt;
}

// The elements of an array of numbers, each through `convert`.
template <class T, class Convert>
std::optional<std::vector<T>> numbers_of(const GgufFile& file, std::string_view key, const char* wanted,
                                         Convert convert) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  const GgufArray* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr || (array->numbers == nullptr && array->count > 0))
    wrong_type(file, key, value->type, wanted);
  std::vector<T> result;
  result.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    const auto element = convert(number_at(array->element, array->numbers + i * width_of(array->element)));
    if (!element) wrong_type(file, key, array->element, wanted);
    result.push_back(*element);
  }
  return result;
}

}  // namespace

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* x = std::get_if<std::string_view>(&value->value)) return *x;
  wrong_type(*this, key, value->type, "a string");
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto x = as_integer(*value)) return x;
  wrong_type(*this, key, value->type, "a whole number of at most 63 bits");
}

std::optional<double> GgufFile::real(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto x = as_real(*value)) return x;
  wrong_type(*this, key, value->type, "a number");
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* x = std::get_if<bool>(&value->value)) return *x;
  wrong_type(*this, key, value->type, "true or false");
}

std::optional<std::span<const std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const GgufArray* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr || array->element != GgufValueType::string)
    wrong_type(*this, key, value->type, "strings");
  return std::span<const std::string_view>(array->strings);
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  return numbers_of<int64_t>(*this, key, "whole numbers", as_integer);
}

bool is_gguf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  return std::filesystem::is_regular_file(path) && file.read(magic, 4) &&
         std::string_view(magic, 4) == kMagic;
}

}  // namespace megalith
