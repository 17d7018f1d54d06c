// A tiny recipe on made-up data, and what its log says.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/train/trainer.h"
#include "tests/formats/counting_dataset.h"

namespace megalith {

// A directory of this process, so that test programs can run side by side; it goes with the process.
inline const std::filesystem::path& scratch_root() {
  struct Root {
    std::filesystem::path path =
        std::filesystem::path(::testing::TempDir()) / fmt::format("megalith-trainer-{}", ::getpid());
    ~Root() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Root root;
  return root.path;
}

inline std::filesystem::path scratch(const std::string& name) {
  const std::filesystem::path path = scratch_root() / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline std::string counting_dataset(int64_t documents, int64_t length, int64_t vocabulary) {
  const std::filesystem::path prefix =
      scratch("data") / fmt::format("counting-{}-{}-{}", documents, length, vocabulary);
  write_counting_dataset(prefix, documents, length, vocabulary);
  return prefix.string();
}

inline Recipe small_recipe() {
  Recipe recipe;
  recipe.model.vocab_size = 23;
  recipe.model.num_layers = 2;
  recipe.model.hidden_size = 32;
  recipe.model.num_heads = 4;
  recipe.model.max_positions = 16;
  recipe.model.vocab_multiple = 8;
  recipe.data.train = {{counting_dataset(12, 40, 23), 1.0}};
  recipe.data.split = "";
  recipe.train.steps = 12;
  recipe.train.micro_batch = 2;
  recipe.train.global_batch = 4;
  recipe.train.precision = Precision::fp32;
  recipe.train.threads = 2;
  recipe.optimizer.learning_rate = 3e-3;
  recipe.schedule.warmup_steps = 3;
  recipe.checkpoint.every = 0;
  recipe.log.every = 1;
  recipe.log.validate_every = 0;
  recipe.resolve();
  return recipe;
}

inline TrainOptions into(const std::filesystem::path& output, const std::string& resume = "auto") {
  TrainOptions options;
  options.output = output;
  options.resume = resume;
  return options;
}

// step -> the line without what time and memory decide.
inline std::map<int64_t, std::string> log_lines(const std::filesystem::path& run) {
  std::map<int64_t, std::string> lines;
  std::istringstream text(read_file(run / "log.jsonl"));
  for (std::string line; std::getline(text, line);) {
    auto json = nlohmann::json::parse(line);
    if (!json.contains("loss")) continue;
    for (const char* key : {"tokens_per_second", "peak_memory_bytes", "time"}) json.erase(key);
    EXPECT_TRUE(lines.emplace(json["step"].get<int64_t>(), json.dump()).second) << "step twice: " << line;
  }
  return lines;
}

inline std::vector<double> losses(const std::filesystem::path& run) {
  std::vector<double> values;
  for (const auto& [step, line] : log_lines(run))
    values.push_back(nlohmann::json::parse(line)["loss"].get<double>());
  return values;
}

}  // namespace megalith
