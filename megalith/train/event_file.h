// TensorBoard event files: TFRecord frames around protobuf Events, written by hand
// (https://www.tensorflow.org/tensorboard).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "megalith/base/file.h"

namespace megalith {

class EventFile {
 public:
  /// Creates the file with its version record; `wall_time` in seconds since 1970.
  EventFile(const std::filesystem::path& path, double wall_time);

  /// One scalar. Whole records only are handed to the operating system, since readers stop at a broken one.
  void scalar(double wall_time, int64_t step, std::string_view tag, float value);
  void flush() { file_.flush(); }

 private:
  void record(std::string_view payload);

  OutputFile file_;
};

}  // namespace megalith
