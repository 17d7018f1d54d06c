// The run log: log.jsonl (one object a line) and, from it, TensorBoard event files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megalith/base/file.h"
#include "megalith/train/event_file.h"

namespace megalith {

/// What a training line holds.
struct TrainingRecord {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double tokens_per_second = 0;
  int64_t consumed_samples = 0;
  int64_t consumed_tokens = 0;
  int64_t batch = 0;
  std::optional<double> loss_scale;  // fp16
  bool skipped = false;
  uint64_t peak_memory_bytes = 0;
};

class RunLog {
 public:
  /// Opens `run`/log.jsonl. Lines of steps after `resume_step` are dropped (they belong to work that was lost
  /// and is done again), and the event file is written anew from what stays, so that neither has a step
  /// twice.
  RunLog(const std::filesystem::path& run, int64_t resume_step);

  void training(const TrainingRecord& record);
  void validation(int64_t step, double loss);
  /// A line {"kind": kind, "step": step, ...}: `members` are JSON members without the braces.
  void note(const std::string& kind, int64_t step, const std::string& members);
  void flush();

 private:
  void line(const std::string& text);

  std::unique_ptr<OutputFile> lines_;
  std::unique_ptr<EventFile> events_;
};

/// A JSON number with enough digits to read back the same double; null when it is not finite.
std::string json_number(double value);

}  // namespace megalith
