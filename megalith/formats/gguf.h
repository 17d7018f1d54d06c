// GGUF, versions 2 and 3, little endian: typed metadata, a table of tensors, their bytes (ggml's gguf.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "megalith/base/file.h"
#include "megalith/formats/gguf_types.h"

namespace megalith {

/// The numbers of the file format.
enum class GgufValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view name(GgufValueType type);

struct GgufValue;

/// An array of one element type. Numbers lie in the file as they are; strings and arrays were walked through.
struct GgufArray {
  GgufValueType element = GgufValueType::u8;
  uint64_t count = 0;
  const std::byte* numbers = nullptr;
  std::vector<std::string_view> strings;
  std::vector<GgufValue> arrays;
};

/// One value of the metadata. Text points into the mapped file.
struct GgufValue {
  GgufValueType type = GgufValueType::u8;
  /// Unsigned, signed, floating, boolean.
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> value;
};

/// As text for people: numbers, "text", the first elements of an array.
std::string describe(const GgufValue& value);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  /// Outermost dimension first, the reverse of the file.
  std::vector<int64_t> shape;
  /// From the beginning of the file.
  uint64_t offset = 0, bytes = 0;

  int64_t elements() const;
};

/// A mapped file, fully checked before a byte of a tensor is used: counts and lengths against the file's
/// size, names, types, overflow, alignment, bounds, overlaps. Every fault is an InputError that names the
/// file and the key or tensor.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  uint32_t version() const { return version_; }
  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null when there is none.
  const GgufTensor* find_tensor(std::string_view name) const;
  const GgufValue* find(std::string_view key) const;
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;

  /// A value of the metadata; nothing when the key is absent. Throws InputError when it has another type (any
  /// width of number serves where it fits).
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::span<const std::string_view>> strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;

 private:
  MappedFile file_;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> key_index_, tensor_index_;
};

/// Whether a file begins as GGUF does.
bool is_gguf(const std::filesystem::path& path);

/// Writes version 3 with an alignment of 32: metadata and the table of tensors first, then tensor by tensor.
class GgufWriter {
 public:
  explicit GgufWriter(const std::filesystem::path& path);

  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }
  void add(std::string_view key, uint32_t number);
  void add(std::string_view key, int32_t number) = delete;  // would become a float or a flag
  void add(std::string_view key, float number);
  void add(std::string_view key, bool flag);
  void add(std::string_view key, std::span<const std::string> texts);
  void add(std::string_view key, std::span<const int32_t> numbers);
  void add(std::string_view key, std::span<const float> numbers);
  /// Announces a tensor (shape outermost first); all are announced before the first is written.
  void plan(std::string_view name, GgufType type, std::span<const int64_t> shape);

  /// The bytes of the next planned tensor, or more of them until it is complete. Throws Error when they are
  /// not those that were planned, or on a full disk.
  void write(std::string_view name, const void* data, uint64_t bytes);
  void finish();

 private:
  struct Planned {
    std::string name;
    uint64_t bytes;
  };
  void begin_key(std::string_view key, GgufValueType type);
  void write_header();

  OutputFile file_;
  std::string metadata_, table_;
  uint64_t keys_ = 0, data_bytes_ = 0;
  std::vector<Planned> planned_;
  size_t next_ = 0;
  uint64_t written_ = 0;  // of the next tensor
  bool header_written_ = false;
};

}  // namespace megalith
