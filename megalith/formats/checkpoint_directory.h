// A checkpoint on disk: a directory with safetensors shards, other files, and manifest.json, which names
// every file and tensor with its checksum. It is written under a name that ends in ".partial", the manifest
// last, and renamed into place: a directory without that ending is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/formats/safetensors.h"
#include "megalith/tensor/tensor_slice.h"

namespace megalith {

/// A tensor to write, or what one rank has of one of shape `shape`: the local elements [begin, begin +
/// view.elements()) of a slice of it.
struct CheckpointTensor {
  std::string name;
  TensorView view;
  Shape shape;
  TensorSlice slice;
  int64_t begin = 0;

  CheckpointTensor(std::string tensor_name, TensorView whole)
      : name(std::move(tensor_name)), view(whole), shape(whole.shape()) {}
  CheckpointTensor(std::string tensor_name, TensorView part, const Shape& whole, TensorSlice of,
                   int64_t first)
      : name(std::move(tensor_name)), view(part), shape(whole), slice(std::move(of)), begin(first) {}

  /// Whether the view is the whole tensor.
  bool whole() const { return slice.whole() && view.elements() == shape.elements(); }
};

class CheckpointWriter {
 public:
  /// Starts `directory`.partial, replacing a left-over of an earlier attempt. Another rank's writer that
  /// `joins` one adds files to a directory that is there, hands its records() to the first and neither
  /// commits nor cleans up.
  explicit CheckpointWriter(const std::filesystem::path& directory, bool joins = false);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Removes what was written when commit() was not reached.
  ~CheckpointWriter();

  /// Writes one safetensors file and records the checksum of every tensor.
  void write_tensors(const std::string& file, const std::vector<CheckpointTensor>& tensors);
  /// The same, one tensor at a time: `bytes_of(i)` gives what tensors[i], whose view says only its type and
  /// shape, holds; it is used before the next call.
  void write_tensors(const std::string& file, const std::vector<CheckpointTensor>& tensors,
                     const std::function<TensorView(size_t)>& bytes_of);
  void write_file(const std::string& file, std::string_view bytes);
  /// What this writer has written, for add_records() of the one that commits.
  std::string records() const;
  void add_records(const std::string& records);
  /// Writes the manifest with the step and `state`, a JSON object of the writer's own, and renames the
  /// directory into place. Throws Error on a full disk; the directory that was there before stays as it was.
  void commit(int64_t step, const std::string& state);

 private:
  struct Record;
  std::filesystem::path final_, partial_;
  std::vector<Record> files_;
  std::vector<std::string> tensor_records_;  // JSON objects
  bool joins_;
  bool committed_ = false;
};

class CheckpointReader {
 public:
  /// Reads the manifest and checks names and sizes of all files; contents are checked when read. Faults are
  /// InputErrors that name the file.
  explicit CheckpointReader(const std::filesystem::path& directory);

  int64_t step() const { return step_; }
  /// The writer's own JSON object.
  const std::string& state() const { return state_; }
  const std::filesystem::path& directory() const { return directory_; }
  bool has_file(const std::string& file) const;
  /// A whole file, checked against its checksum.
  std::string read_file(const std::string& file) const;
  std::vector<std::string> tensor_names() const;
  /// A tensor, checked against its recorded type, shape and checksum. The view lives as long as the reader. A
  /// tensor that was written in parts is put together in memory.
  TensorView tensor(const std::string& name) const;
  DType dtype(const std::string& name) const { return record(name).dtype; }
  Shape shape(const std::string& name) const;
  /// The files that hold parts of a tensor.
  std::vector<std::string> files_of(const std::string& name) const;
  /// Names of all files but the safetensors ones and the manifest.
  std::vector<std::string> plain_files() const;
  /// The same as tensor(), not kept by the reader.
  Tensor load(const std::string& name) const;
  /// Copies a part of an F32 tensor, in whatever parts it was written; only those that are touched are read.
  /// Throws InputError when the tensor has another shape.
  void read(const std::string& name, const Shape& shape, const SlicePart& part, std::span<float> out) const;
  /// Checks every file and tensor, reading all bytes.
  void verify() const;

 private:
  struct FileRecord {
    uint64_t bytes = 0;
    std::string checksum;  // empty for shards, whose tensors have their own
  };
  struct Piece {
    std::string file, checksum;
    SlicePart part;
    bool checked = false;
  };
  struct TensorRecord {
    DType dtype = DType::f32;
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;  // by slice and begin; together they are the tensor
    Shape view_shape(const std::string& where) const;
  };
  void add_piece(const std::string& name, const TensorRecord& given, Piece piece, const std::string& where);
  static void check_complete(const std::string& name, TensorRecord& record, const std::string& where);
  const SafetensorsFile& shard(const std::string& file) const;
  TensorRecord& record(const std::string& name) const;
  TensorView piece_view(const std::string& name, const TensorRecord& record, Piece& piece) const;

  std::filesystem::path directory_;
  int64_t step_ = 0;
  std::string state_;
  std::map<std::string, FileRecord> files_;
  mutable std::map<std::string, TensorRecord> tensors_;
  mutable std::map<std::string, Tensor> assembled_;
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>> shards_;
};

/// "step-00000100".
std::string checkpoint_name(int64_t step);

/// Complete checkpoints in `run`/checkpoints, by rising step.
std::vector<std::pair<int64_t, std::filesystem::path>> list_checkpoints(const std::filesystem::path& run);

/// `path` when it is a checkpoint, the newest complete checkpoint when it is a run directory, else nothing.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& path);

}  // namespace megalith
