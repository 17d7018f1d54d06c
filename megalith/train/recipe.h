// Recipe: everything that decides a training run. A TOML file fills it; the resolved recipe is stored with
// the run.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/config.h"
#include "megalith/model/model_config.h"
#include "megalith/nn/pass.h"
#include "megalith/parallel/pipeline_schedule.h"

namespace megalith {

enum class Precision { fp32, bf16, fp16 };
inline constexpr std::array<std::string_view, 3> kPrecisionNames = {"fp32", "bf16", "fp16"};
DType compute_type(Precision precision);

inline constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "attention", "full"};

enum class OptimizerType { adamw, sgd, lamb };
inline constexpr std::array<std::string_view, 3> kOptimizerNames = {"adamw", "sgd", "lamb"};

enum class ScheduleType { constant, linear, cosine, inverse_sqrt, warmup_stable_decay };
inline constexpr std::array<std::string_view, 5> kScheduleNames = {"constant", "linear", "cosine",
                                                                   "inverse_sqrt", "warmup_stable_decay"};

/// What lengths of a run count in.
enum class Unit { steps, samples, tokens };
std::string_view name(Unit unit);

/// What to do about a loss or gradient that is not finite, when fp16 loss scaling does not explain it.
enum class NotFinitePolicy { stop, skip };
inline constexpr std::array<std::string_view, 2> kNotFiniteNames = {"stop", "skip"};

struct DataConfig {
  std::string tokenizer;
  std::vector<WeightedPath> train, validation, test;
  std::string split = "949,50,1";
  int64_t sequence_length = 0;  // 0: model.max_positions
  bool reset_at_documents = false;
  double mask_share = 0.15;
  std::string mask_token;
  bool shuffle = true;
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 0, samples = 0, tokens = 0;
  int64_t micro_batch = 4;
  int64_t global_batch = 0;  // 0: micro_batch
  int64_t batch_ramp_start = 0, batch_ramp_increment = 0, batch_ramp_samples = 0, batch_ramp_tokens = 0;
  Precision precision = Precision::bf16;
  int64_t seed = 1234;
  Recompute recompute = Recompute::none;
  int64_t threads = 0;  // 0: all
  double loss_scale_start = 65536;
  int64_t loss_scale_interval = 1000;
  double loss_scale_floor = 1;
  int64_t loss_scale_patience = 20;
  NotFinitePolicy on_not_finite = NotFinitePolicy::stop;
  int64_t not_finite_patience = 20;
  bool operator==(const TrainConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double learning_rate = 6e-4;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  std::string offload_directory;
  bool operator==(const OptimizerConfig&) const = default;
};

struct ScheduleConfig {
  ScheduleType type = ScheduleType::cosine;
  int64_t warmup_steps = 0, warmup_samples = 0, warmup_tokens = 0;
  int64_t decay_steps = 0, decay_samples = 0, decay_tokens = 0;
  double min_learning_rate = -1;  // below 0: a tenth of the learning rate
  bool operator==(const ScheduleConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every = 1000;
  int64_t keep_last = 2;
  int64_t keep_every = 0;
  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  int64_t every = 10;
  int64_t validate_every = 100;
  int64_t validation_samples = 64;
  bool operator==(const LogConfig&) const = default;
};

struct ParallelConfig {
  int64_t tensor = 1, pipeline = 1, virtual_pipeline = 1, expert = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  std::string layer_split = "even";
  double hang_seconds = 25;
  bool sequence_parallel = false;
  int64_t zero_stage = 0;
  int64_t zero_persistent_elements = 100'000;
  std::string zero_offload_directory;
  int64_t bucket_elements = 8'000'000;
  bool operator==(const ParallelConfig&) const = default;
};

struct Recipe {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  LogConfig log;
  ParallelConfig parallel;

  bool operator==(const Recipe&) const = default;

  void describe(ConfigVisitor& visitor);
  /// Reads a recipe; paths in it are taken relative to the file. Throws InputError (place, key, what is
  /// allowed).
  static Recipe load(const std::filesystem::path& path, const std::vector<std::string>& overrides);
  static Recipe from_source(const ConfigSource& source, const std::filesystem::path& directory);
  /// Checks that do not need files; fills lengths and batch sizes that follow from others.
  void resolve();
  std::string to_toml() const;

  /// What the run's length counts in, and the length.
  Unit unit() const;
  int64_t length() const;
};

}  // namespace megalith
