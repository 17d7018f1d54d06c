// RunDirectory: where a run lives, and which checkpoint it begins from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "megalith/base/file.h"

namespace megalith {

class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  /// Makes the directory, locks it as long as this lives, removes what a kill interrupted, and says which
  /// checkpoint to begin from (TrainOptions::resume), if any. For the first rank. Throws InputError.
  std::optional<std::filesystem::path> prepare(const std::string& resume);
  /// Runs `read`; when the checkpoint turns out to be damaged, the error says which one of the run is before
  /// it.
  void read(const std::filesystem::path& checkpoint, const std::function<void()>& read) const;
  /// Renames the checkpoints of later steps than `begun_step`: what the run had reached on another path would
  /// win over its new checkpoints when it goes on. Returns whether `begun_from` is a checkpoint of this run.
  bool set_later_checkpoints_aside(const std::filesystem::path& begun_from, int64_t begun_step) const;
  /// A phrase for errors.
  std::string last_checkpoint() const;

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;
};

}  // namespace megalith
