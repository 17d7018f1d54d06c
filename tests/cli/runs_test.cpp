// Training runs that are interrupted, killed, or run out of disk: what they leave, and that going on gives
// the run that nothing has disturbed, bit for bit.
#include <sys/mount.h>

#include <map>
#include <nlohmann/json.hpp>

#include "megalith/formats/checkpoint_directory.h"
#include "tests/cli/program.h"
#include "tests/formats/counting_dataset.h"

namespace megalith {
namespace {

using testing::Process;
using testing::ProgramTest;
using testing::Result;
using testing::Setting;
using testing::slurp;
using Json = nlohmann::json;
namespace fs = testing::fs;

constexpr int kSteps = 24;

class Runs : public ProgramTest {
 protected:
  // A dataset of counting documents, and a recipe with dropout, fp16 scaling, a ramp and several epochs, so
  // that every part of the state matters.
  void SetUp() override {
    ProgramTest::SetUp();
    write_counting_dataset(folder / "counting", 20, 60, 500);
    write("recipe.toml", fmt::format(R"([model]
vocab_size = 500
num_layers = 3
hidden_size = 128
num_heads = 4
max_positions = 32
hidden_dropout = 0.1
attention_dropout = 0.1
[data]
train = "counting"
split = ""
[train]
steps = {0}
micro_batch = 3
global_batch = 6
batch_ramp_start = 2
batch_ramp_increment = 2
batch_ramp_samples = 30
precision = "bf16"
threads = 2
[schedule]
warmup_steps = 5
decay_steps = {0}
[checkpoint]
every = 0
[log]
every = 1
validate_every = 0
)",
                                     kSteps));
  }

  std::vector<std::string> train(const std::string& run, const std::string& every = "0") const {
    return {"train", "recipe.toml", "--output", run, "--set", "checkpoint.every=" + every};
  }
  // Runs until `step` is done and sends the signal; once more from the start if the run was over before it
  // came, as on a busy machine.
  Result interrupted(const std::vector<std::string>& arguments, const std::string& run, int step,
                     int signal) {
    const fs::path before = folder / "before";
    if (fs::exists(folder / run)) fs::copy(folder / run, before, fs::copy_options::recursive);
    Result result;
    for (int attempt = 0; attempt < 5; ++attempt) {
      Process process(folder, arguments);
      EXPECT_TRUE(process.until([&] { return process.has_said(fmt::format("step {}/", step)); }));
      process.send(signal);
      result = process.wait();
      if (result.err.find("done: ") == std::string::npos) break;
      fs::remove_all(folder / run);
      if (fs::exists(before)) fs::copy(before, folder / run, fs::copy_options::recursive);
    }
    fs::remove_all(before);
    return result;
  }
  // step -> the line without what time and memory decide.
  std::map<int, std::string> log_of(const std::string& run) const {
    std::map<int, std::string> lines;
    std::istringstream text(slurp(folder / run / "log.jsonl"));
    for (std::string line; std::getline(text, line);) {
      Json record = Json::parse(line, nullptr, false);
      if (!record.is_object() || !record.contains("loss")) continue;
      for (const char* key : {"tokens_per_second", "peak_memory_bytes", "time"}) record.erase(key);
      EXPECT_TRUE(lines.emplace(record["step"].get<int>(), record.dump()).second) << "step twice: " << line;
    }
    return lines;
  }
  void expect_same_runs(const std::string& a, const std::string& b) const {
    const auto lines = log_of(a);
    EXPECT_EQ(lines.size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(lines, log_of(b));
    const CheckpointReader x(folder / a / "checkpoints" / checkpoint_name(kSteps));
    const CheckpointReader y(folder / b / "checkpoints" / checkpoint_name(kSteps));
    ASSERT_EQ(x.tensor_names(), y.tensor_names());
    for (const std::string& name : x.tensor_names()) {
      const auto p = x.tensor(name).span<float>(), q = y.tensor(name).span<float>();
      EXPECT_TRUE(std::equal(p.begin(), p.end(), q.begin(), q.end())) << name;
    }
    EXPECT_EQ(x.state(), y.state());
  }
  int newest_step(const std::string& run) const {
    const auto checkpoints = list_checkpoints(folder / run);
    return checkpoints.empty() ? -1 : static_cast<int>(checkpoints.back().first);
  }
  // What a shell makes of the command that the program advises.
  std::vector<std::string> advised_command(const std::string& text) const {
    const std::string begin = "To go on: megalith ";
    const size_t at = text.find(begin);
    EXPECT_NE(at, std::string::npos) << text;
    if (at == std::string::npos) return {};
    const size_t from = at + begin.size();
    const std::string script = "printf '%s\\n' " + text.substr(from, text.find('\n', from) - from);
    std::vector<std::string> words;
    FILE* pipe = ::popen(script.c_str(), "r");
    char line[4096];
    while (std::fgets(line, sizeof line, pipe) != nullptr) words.emplace_back(line, std::strlen(line) - 1);
    ::pclose(pipe);
    return words;
  }
};

TEST_F(Runs, SignalsEndARunCleanlyAndItGoesOnBitForBit) {
  output(train("unbroken"));
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = fmt::format("run {}'s", signal);
    const Result stopped = interrupted(train(name), name, 7, signal);
    EXPECT_EQ(stopped.status, 0) << stopped.err;
    const int step = newest_step(name);
    EXPECT_GE(step, 7);
    ASSERT_LT(step, kSteps) << "the run was over before the signal came";
    EXPECT_NE(stopped.err.find(fmt::format("stopped at step {}; the state is saved", step)),
              std::string::npos)
        << stopped.err;
    const std::vector<std::string> again = advised_command(stopped.err);
    EXPECT_NE(std::find(again.begin(), again.end(), "checkpoint.every=0"), again.end());
    const Result rest = run(again);
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_NE(rest.err.find(fmt::format("going on from step {}", step)), std::string::npos) << rest.err;
    expect_same_runs("unbroken", name);
  }
}

TEST_F(Runs, ASignalBeforeTheFirstStepIsACleanStopToo) {
  Process process(folder, train("run"));
  // The folder is made once signals are caught, before weights and data are ready.
  ASSERT_TRUE(process.until([&] { return fs::exists(folder / "run" / "checkpoints"); }));
  process.send(SIGTERM);
  const Result stopped = process.wait();
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_GE(newest_step("run"), 0);
  output(train("run"));
  output(train("unbroken"));
  expect_same_runs("unbroken", "run");
}

TEST_F(Runs, ASecondInterruptEndsAtOnce) {
  // After a first step of two samples, one that takes minutes.
  auto slow = train("run");
  slow.insert(slow.end(), {"--set", "train.global_batch=100002", "--set", "train.batch_ramp_increment=100000",
                           "--set", "train.batch_ramp_samples=2"});
  Process process(folder, slow);
  ASSERT_TRUE(process.until([&] { return process.has_said("step 1/"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  process.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(process.running()) << "the first signal must let the step end";
  const auto sent = std::chrono::steady_clock::now();
  process.send(SIGINT);
  const Result ended = process.wait();
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.err;
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(2));
}

TEST_F(Runs, KilledAtAnyMomentItGoesOnFromACompleteCheckpoint) {
  output(train("unbroken"));
  std::mt19937 random(11);
  int resumed = 0, while_writing = 0;
  for (int kill = 0; kill < 8; ++kill) {
    const int start = newest_step("run");
    if (start >= kSteps - 1) break;
    Process process(folder, train("run", "1"));
    if (kill % 2 == 0) {
      // As soon as the next checkpoint but one is being written.
      const fs::path partial =
          folder / "run" / "checkpoints" / (checkpoint_name(std::max(start, 0) + 2) + ".partial");
      process.until([&] { return fs::exists(partial); });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    } else {
      // At a moment of some step.
      process.until([&] { return newest_step("run") > start; });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    }
    process.send(SIGKILL);
    const Result killed = process.wait();
    ASSERT_TRUE(killed.signal == SIGKILL || killed.status == 0) << killed.err;
    if (killed.err.find("going on from step") != std::string::npos) ++resumed;
    for (const auto& entry : fs::directory_iterator(folder / "run" / "checkpoints"))
      while_writing += entry.path().extension() == ".partial" ? 1 : 0;
    if (newest_step("run") >= 0) output({"inspect", "run", "--verify"});
  }
  EXPECT_GE(resumed, 3);
  EXPECT_GE(while_writing, 1) << "no kill hit a checkpoint that was being written";
  output(train("run", "1"));
  expect_same_runs("unbroken", "run");
  for (const auto& entry : fs::directory_iterator(folder / "run" / "checkpoints"))
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
}

TEST_F(Runs, AFileThatCannotBeWrittenEndsTheRunAndLeavesTheCheckpointBefore) {
  output(train("unbroken"));
  auto first = train("run", "5");
  first.insert(first.end(), {"--set", "train.steps=5"});
  output(first);
  // The weights fit; the optimizer's states, twice as large, do not.
  const uint64_t weights =
      fs::file_size(folder / "run" / "checkpoints" / checkpoint_name(5) / "model.safetensors");
  const Result full = run(train("run", "5"), {.file_size_limit = weights * 3 / 2});
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_NE(full.err.find("cannot write"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("optimizer.safetensors: File too large"), std::string::npos) << full.err;
  EXPECT_EQ(newest_step("run"), 5);
  EXPECT_FALSE(fs::exists(folder / "run" / "checkpoints" / (checkpoint_name(10) + ".partial")));
  output({"inspect", "run", "--verify"});
  output(train("run", "5"));
  expect_same_runs("unbroken", "run");
}

TEST_F(Runs, AFullDiskEndsTheRunAndLeavesTheCheckpointBefore) {
  const fs::path disk = folder / "disk";
  fs::create_directories(disk);
  // One checkpoint is 8 MB; two do not fit.
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=12m") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs here";
  const Result full = run(train("disk/run", "5"));
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("disk/run/checkpoints/" + checkpoint_name(10)), std::string::npos) << full.err;
  EXPECT_EQ(newest_step("disk/run"), 5);
  output({"inspect", "disk/run", "--verify"});
  EXPECT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST_F(Runs, GoingBackSetsLaterCheckpointsAside) {
  output(train("unbroken"));
  output(train("run", "12"));
  // The last checkpoint is damaged; the advice names the one before.
  const fs::path file = folder / "run" / "checkpoints" / checkpoint_name(kSteps) / "optimizer.safetensors";
  std::string bytes = slurp(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  std::ofstream(file, std::ios::binary) << bytes;
  const Result refused = run(train("run", "12"));
  EXPECT_EQ(refused.status, 2);
  const std::string resume = "--resume run/checkpoints/" + checkpoint_name(12);
  EXPECT_NE(refused.err.find(resume), std::string::npos) << refused.err;
  auto back = train("run");
  back.insert(back.end(), {"--resume", "run/checkpoints/" + checkpoint_name(12)});
  EXPECT_EQ(interrupted(back, "run", 14, SIGINT).status, 0);
  const int step = newest_step("run");
  EXPECT_GE(step, 14);
  EXPECT_LT(step, kSteps);
  // The damaged one of a later step would stand in the way here.
  output(train("run"));
  expect_same_runs("unbroken", "run");
}

TEST_F(Runs, ARunBegunElsewhereHasACheckpointOfItsOwnWhenInterrupted) {
  auto donor = train("donor", "5");
  donor.insert(donor.end(), {"--set", "train.steps=5"});
  output(donor);
  auto from = train("run");
  from.insert(from.end(), {"--resume", "donor"});
  Process process(folder, from);
  ASSERT_TRUE(process.until([&] { return fs::exists(folder / "run" / "checkpoints"); }));
  process.send(SIGINT);
  const Result stopped = process.wait();
  ASSERT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_GE(newest_step("run"), 5);
  const Result rest = run(advised_command(stopped.err));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_NE(rest.err.find("going on from step"), std::string::npos) << rest.err;
  output(train("unbroken"));
  const auto whole = log_of("unbroken"), late = log_of("run");
  EXPECT_EQ(late.size(), static_cast<size_t>(kSteps - 5));
  for (const auto& [step, line] : late) EXPECT_EQ(line, whole.at(step));
}

// Batch systems limit address space, of which arenas otherwise reserve as much as the machine has memory.
TEST_F(Runs, ALimitOnAddressSpaceIsKept) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space of their own";
#endif
  output(train("free"));
  Setting setting;
  setting.address_space = uint64_t{2} << 30;
  output(train("limited"), setting);
  expect_same_runs("limited", "free");
  setting.address_space = uint64_t{400} << 20;
  const Result result = run(train("too little"), setting);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_NE(result.err.find("cannot reserve"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("ulimit -v"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace megalith
