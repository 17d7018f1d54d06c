#include "megalith/train/run_log.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / "megalith-run-log" / name;
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

TrainingRecord record(int64_t step, double loss) {
  TrainingRecord r;
  r.step = step;
  r.loss = loss;
  return r;
}

int count_lines(const fs::path& path) {
  const std::string text = read_file(path);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(RunLog, ResumeDropsTheLinesOfLostStepsAndCutOnes) {
  const fs::path run = scratch("resume");
  {
    RunLog log(run, 0);
    for (int64_t step = 1; step <= 7; ++step) log.training(record(step, 1.0 / 3));
    log.validation(5, 2.5);
    log.flush();
  }
  {
    OutputFile file(run / "log.jsonl", true);
    file.write("{\"step\": 8, \"lo");  // killed while writing
    file.close();
  }
  {
    RunLog log(run, 5);
    log.training(record(6, 0.25));
    log.flush();
  }
  EXPECT_EQ(count_lines(run / "log.jsonl"), 7);  // steps 1 to 5, the validation, step 6
  const std::string text = read_file(run / "log.jsonl");
  EXPECT_EQ(text.find("\"step\": 7"), std::string::npos);
  EXPECT_NE(text.find("\"step\": 6, \"loss\": 0.25"), std::string::npos);
  // One event file, written anew: version, 4 numbers a training line (six lines), one validation.
  int files = 0;
  for (const auto& entry : fs::directory_iterator(run / "tensorboard")) {
    ++files;
    EXPECT_NE(entry.path().filename().string().find("tfevents"), std::string::npos);
  }
  EXPECT_EQ(files, 1);
}

// Lines that are JSON, but hold something else than numbers, are kept as they are.
TEST(RunLog, DamagedLinesDoNoHarm) {
  const fs::path run = scratch("damaged");
  {
    OutputFile file(run / "log.jsonl");
    file.write(
        "{\"step\": \"x\", \"loss\": 1}\n{\"step\": [], \"time\": null, \"loss\": 2}\n{\"step\": 9}\n");
  }
  RunLog(run, 5).validation(5, 1);
  EXPECT_EQ(count_lines(run / "log.jsonl"), 3);
}

TEST(RunLog, LossesHaveEveryDigitAndNanIsNull) {
  const fs::path run = scratch("digits");
  const double loss = 3.0 + 1e-15 * 7;
  {
    RunLog log(run, 0);
    log.training(record(1, loss));
    log.training(record(2, std::nan("")));
    log.flush();
  }
  const std::string text = read_file(run / "log.jsonl");
  const size_t at = text.find("\"loss\": ") + 8;
  EXPECT_EQ(std::stod(text.substr(at, 30)), loss);
  EXPECT_NE(text.find("\"loss\": null"), std::string::npos);
}

}  // namespace
}  // namespace megalith
