// Optimizer states, weights and gradients on disk: a model whose states exceed the memory trains, and to the
// same numbers.
#include <fstream>
#include <nlohmann/json.hpp>

#include "megalith/base/random.h"
#include "megalith/formats/indexed_dataset.h"
#include "tests/cli/program.h"

namespace megalith {
namespace {

using testing::ProgramTest;
using testing::Result;
using testing::Setting;
using testing::slurp;
namespace fs = testing::fs;

// A control group that limits the memory of this process and of the programs that it starts; files that are
// mapped count only while they must stay.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t bytes) {
    std::error_code code;
    fs::create_directory(group_, code);
    if (code) return;
    std::ofstream(group_ / "memory.limit_in_bytes") << bytes;
    enter(group_);
    works_ = slurp(group_ / "cgroup.procs").find(std::to_string(::getpid())) != std::string::npos;
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() {
    enter("/sys/fs/cgroup/memory");
    std::error_code ignored;
    fs::remove(group_, ignored);
  }
  bool works() const { return works_; }

 private:
  static void enter(const fs::path& group) { std::ofstream(group / "cgroup.procs") << ::getpid(); }
  const fs::path group_ = fmt::format("/sys/fs/cgroup/memory/megalith-test-{}", ::getpid());
  bool works_ = false;
};

class Offload : public ProgramTest {
 protected:
  // 27 million parameters: 55 MB of weights, 109 MB of gradients, 328 MB of optimizer states.
  void SetUp() override {
    ProgramTest::SetUp();
    IndexedDatasetWriter writer(folder / "counting", TokenType::uint16);
    std::vector<int32_t> tokens(400);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 500);
    writer.add_document(tokens);
    writer.finish();
    fs::create_directory(folder / "disk");
    write("recipe.toml", R"([model]
vocab_size = 4096
num_layers = 8
hidden_size = 512
num_heads = 8
max_positions = 32
[data]
train = "counting"
split = ""
[train]
steps = 3
micro_batch = 1
global_batch = 1
threads = 1
[checkpoint]
every = 0
[log]
every = 1
)");
  }
  enum class On { memory, disk_states, disk_all };
  std::vector<std::string> command(const std::string& run, On where,
                                   const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> words{"train", "recipe.toml", "--output", run};
    const auto set = [&](const std::string& setting) {
      words.emplace_back("--set");
      words.push_back(setting);
    };
    for (const std::string& setting : settings) set(setting);
    if (where != On::memory) set("optimizer.offload_directory=disk");
    if (where == On::disk_all) {
      set("parallel.zero_stage=3");
      set("parallel.zero_offload_directory=disk");
    }
    return words;
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> values;
    std::istringstream text(slurp(folder / run / "log.jsonl"));
    for (std::string line; std::getline(text, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) values.push_back(json["loss"].get<double>());
    }
    return values;
  }
};

TEST_F(Offload, AModelWhoseStatesExceedTheMemoryTrainsToTheSameNumbers) {
  ASSERT_EQ(run(command("memory", On::memory)).status, 0);
  const std::vector<double> expected = losses("memory");
  ASSERT_EQ(expected.size(), 3u);
  for (const On where : {On::disk_states, On::disk_all}) {
    const std::string name = where == On::disk_all ? "all" : "states";
    ASSERT_EQ(run(command(name, where)).status, 0);
    EXPECT_EQ(losses(name), expected);
    // Nothing stays on the disk.
    EXPECT_TRUE(fs::is_empty(folder / "disk"));
  }
  {
    const MemoryLimit limit(uint64_t{300} << 20);
    if (!limit.works()) GTEST_SKIP() << "no control group for a memory limit";
    EXPECT_EQ(run(command("limited", On::memory)).signal, SIGKILL);
    const Result result = run(command("limited-states", On::disk_states));
    EXPECT_EQ(result.status, 0) << result.signal << result.err;
    EXPECT_EQ(losses("limited-states"), expected);
  }
  // Weights and gradients alone are more than this; the units that are whole at a time are 51 MB.
  const MemoryLimit limit(uint64_t{130} << 20);
  ASSERT_TRUE(limit.works());
  EXPECT_EQ(run(command("limited", On::disk_states)).signal, SIGKILL);
  const Result result = run(command("limited-all", On::disk_all));
  EXPECT_EQ(result.status, 0) << result.signal << result.err;
  EXPECT_EQ(losses("limited-all"), expected);
}

// In fp32 the weights are the master weights, which the update reads and writes.
TEST_F(Offload, Fp32WeightsLieInTheFileThatTheUpdateWrites) {
  const std::vector<std::string> fp32{"train.precision=fp32"};
  ASSERT_EQ(run(command("memory", On::memory, fp32)).status, 0);
  ASSERT_EQ(run(command("disk-run", On::disk_all, fp32)).status, 0);
  EXPECT_EQ(losses("disk-run"), losses("memory"));
}

TEST_F(Offload, ADirectoryThatIsNotThereIsRefused) {
  expect_error({"train", "recipe.toml", "--output", "run", "--set", "optimizer.offload_directory=/nowhere"},
               "cannot create a file for optimizer states in /nowhere");
  expect_error({"train", "recipe.toml", "--output", "run", "--set", "parallel.zero_stage=3", "--set",
                "parallel.zero_offload_directory=/nowhere"},
               "cannot create a file for weights in /nowhere");
}

TEST_F(Offload, AFullDiskIsRefusedBeforeTraining) {
  Setting setting;
  setting.file_size_limit = uint64_t{16} << 20;
  expect_error(command("run", On::disk_all), " bytes of ", 2, setting);
  EXPECT_FALSE(fs::exists(folder / "run" / "log.jsonl"));
}

TEST_F(Offload, WeightsThatAreInUseAllTheTimeStayInMemory) {
  expect_error({"train", "recipe.toml", "--output", "run", "--set", "parallel.zero_stage=2", "--set",
                "parallel.zero_offload_directory=disk"},
               "needs parallel.zero_stage = 3");
}

TEST_F(Offload, ADryRunSaysWhatLiesOnTheDisk) {
  std::vector<std::string> words = command("run", On::disk_all);
  words.emplace_back("--dry-run");
  const std::string plan = output(words);
  for (const char* kind : {"weights on disk", "gradients on disk", "optimizer states on disk", "buckets"})
    EXPECT_NE(plan.find(kind), std::string::npos) << plan;
  EXPECT_TRUE(fs::is_empty(folder / "disk"));
}

}  // namespace
}  // namespace megalith
