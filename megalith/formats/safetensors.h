// safetensors: an 8-byte little-endian header length, a JSON header, then the tensors' bytes
// (huggingface.co/docs/safetensors).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/file.h"
#include "megalith/tensor/tensor.h"

namespace megalith {

/// One tensor of a file. Offsets count from the end of the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;

  uint64_t bytes() const { return end - begin; }
  int64_t elements() const;
};

/// A mapped file, fully checked before a byte of a tensor is used: bounds, overlaps, holes, sizes against
/// shapes and types, duplicate names. Every fault is an InputError that names the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null when there is no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// A view into the map (read-only memory). Throws InputError when the rank is above 4.
  TensorView view(const SafetensorsEntry& entry) const;
  const std::filesystem::path& path() const { return file_.path(); }

  /// Headers up to this many bytes are read.
  static constexpr uint64_t kMaxHeaderBytes = 100u << 20;

 private:
  MappedFile file_;
  uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// What a file is going to hold; tensors are laid out in the given order.
struct SafetensorsPlan {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  void add(std::string name, DType dtype, const Shape& shape);
};

/// Writes a file tensor by tensor, in the order of the plan.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, SafetensorsPlan plan);

  /// The bytes of the next tensor, or more of them until it is complete. Throws Error when it is not the one
  /// that the plan has next, or the bytes are too many.
  void write(std::string_view name, const void* data, uint64_t bytes);
  /// Waits until the file is on the disk. Throws Error when a tensor is missing or a write fails.
  void finish();
  const SafetensorsPlan& plan() const { return plan_; }
  uint64_t bytes_written() const { return file_.bytes_written(); }

 private:
  SafetensorsPlan plan_;
  OutputFile file_;
  size_t next_ = 0;
  uint64_t written_ = 0;  // of the next tensor
};

}  // namespace megalith
