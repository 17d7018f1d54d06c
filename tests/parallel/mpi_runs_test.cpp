// The program under mpirun: layouts that equal one process, and ranks that die, hang, or are told to stop.
#include <gmock/gmock.h>

#include <chrono>
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
using testing::slurp;
using Json = nlohmann::json;
namespace fs = testing::fs;

constexpr int kSteps = 40;

class MpiRuns : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    // Test machines may run as root.
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    write_counting_dataset(folder / "counting", 20, 60, 500);
    write("recipe.toml", fmt::format(R"([model]
vocab_size = 500
num_layers = 4
hidden_size = 64
num_heads = 4
max_positions = 32
hidden_dropout = 0.1
[data]
train = "counting"
split = "80,20,0"
[train]
steps = {}
micro_batch = 2
global_batch = 8
precision = "fp32"
threads = 1
[checkpoint]
every = 4
keep_last = 100
[log]
every = 1
validate_every = 20
)",
                                     kSteps));
  }

  static std::vector<std::string> command(int ranks, const std::string& run,
                                          const std::vector<std::string>& settings,
                                          const std::vector<std::string>& transport = {}) {
    std::vector<std::string> words{"-n", std::to_string(ranks), "--oversubscribe"};
    words.insert(words.end(), transport.begin(), transport.end());
    for (const char* word : {MEGALITH_BINARY, "train", "recipe.toml", "--output"}) words.emplace_back(word);
    words.push_back(run);
    for (const std::string& setting : settings) {
      words.emplace_back("--set");
      words.push_back(setting);
    }
    return words;
  }
  void train(int ranks, const std::string& name, const std::vector<std::string>& settings,
             const std::vector<std::string>& transport = {}) const {
    const Result result = run(command(ranks, name, settings, transport));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(ranks_of(name), ranks);
  }
  /// How many ranks a run has had, by its own log.
  int ranks_of(const std::string& name) const {
    std::istringstream text(slurp(folder / name / "log.jsonl"));
    int ranks = 0;
    for (std::string line; std::getline(text, line);) {
      const Json json = Json::parse(line);
      if (json.value("kind", "") == "profile") ranks = json["communication"][0]["ranks"].get<int>();
    }
    return ranks;
  }
  /// step -> losses and norms, without what time decides.
  std::map<std::string, std::string> lines(const std::string& name) const {
    std::map<std::string, std::string> result;
    std::istringstream text(slurp(folder / name / "log.jsonl"));
    for (std::string line; std::getline(text, line);) {
      Json json = Json::parse(line);
      if (!json.contains("loss") && !json.contains("validation_loss")) continue;
      for (const char* key : {"tokens_per_second", "peak_memory_bytes", "time"}) json.erase(key);
      result[fmt::format("{} {}", json["step"].get<int>(), json.contains("loss"))] = json.dump();
    }
    return result;
  }
  /// The process of a rank of a run that is in progress; 0 when it is not there.
  pid_t process_of(int rank) const {
    const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      const pid_t id = std::atoi(entry.path().filename().c_str());
      if (id <= 0) continue;
      std::error_code code;
      if (fs::read_symlink(entry.path() / "cwd", code) != fs::canonical(folder) || code) continue;
      const std::string environment = slurp(entry.path() / "environ");
      if (environment.find(wanted + '\0') != std::string::npos) return id;
    }
    return 0;
  }
  bool has_step(const std::string& name, int step) const {
    return slurp(folder / name / "log.jsonl").find(fmt::format("{{\"step\": {},", step)) != std::string::npos;
  }

  /// Starts a run, does `harm` to a rank once `when` holds, and expects the job to end soon, not with
  /// success.
  Result harmed(const std::vector<std::string>& words, int rank, int signal,
                const std::function<bool()>& when) const {
    Process job(folder, words);
    EXPECT_TRUE(job.until(when)) << job.wait().err;
    const pid_t victim = process_of(rank);
    EXPECT_GT(victim, 0) << "the job has ended already";
    if (victim > 0) {
      ::kill(victim, signal);
    } else {
      job.send(SIGKILL);  // a run that cannot be harmed would go on for long
    }
    const auto start = std::chrono::steady_clock::now();
    const Result result = job.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    EXPECT_NE(result.status, 0) << result.err;
    return result;
  }
};

TEST_F(MpiRuns, PipelinesEqualOneProcessBitForBit) {
  train(1, "one", {});
  const auto expected = lines("one");
  ASSERT_EQ(expected.size(), kSteps + 2u);
  train(2, "two", {"parallel.pipeline=2"});
  EXPECT_EQ(lines("two"), expected);
  train(2, "chunks", {"parallel.pipeline=2", "parallel.virtual_pipeline=2"});
  EXPECT_EQ(lines("chunks"), expected);
  // Every message over sockets.
  train(2, "tcp", {"parallel.pipeline=2"}, {"--mca", "btl", "tcp,self"});
  EXPECT_EQ(lines("tcp"), expected);
}

TEST_F(MpiRuns, ZeroStagesAndTransportsAreEqualBitForBit) {
  const std::string whole = "train.micro_batch=4";  // one a rank: nothing is accumulated
  train(2, "zero-0", {whole});
  const auto expected = lines("zero-0");
  for (const int stage : {1, 2, 3}) {
    const std::string name = fmt::format("zero-{}", stage);
    train(2, name, {whole, fmt::format("parallel.zero_stage={}", stage), "parallel.bucket_elements=10000"});
    EXPECT_EQ(lines(name), expected);
  }
  std::vector<std::string> words =
      command(2, "mpi", {whole, "parallel.zero_stage=3"}, {"--mca", "btl", "tcp,self"});
  words.emplace_back("--transport");
  words.emplace_back("mpi");
  const Result result = run(words);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lines("mpi"), expected);
  // Weights and gradients in files of each rank.
  fs::create_directory(folder / "disk");
  train(2, "disk-run", {whole, "parallel.zero_stage=3", "parallel.zero_offload_directory=disk"});
  EXPECT_EQ(lines("disk-run"), expected);
  EXPECT_TRUE(fs::is_empty(folder / "disk"));
  // A pipeline of data-parallel ranks.
  train(4, "both", {whole, "parallel.zero_stage=1", "parallel.pipeline=2"});
  EXPECT_EQ(lines("both"), expected);
}

// Whatever the hosts, sums are those of one host; what crosses between them does not grow with their ranks.
TEST_F(MpiRuns, HostsChangeNoBit) {
  const auto between_hosts = [&](const std::string& name) {
    std::istringstream text(slurp(folder / name / "log.jsonl"));
    uint64_t bytes = 0;
    for (std::string line; std::getline(text, line);) {
      const Json json = Json::parse(line);
      if (json.value("kind", "") != "profile") continue;
      for (const Json& group : json["communication"]) {
        if (group["group"] == "data parallel") bytes = group["bytes_between_hosts"].get<uint64_t>();
      }
    }
    return bytes;
  };
  for (const std::string layout : {"parallel.zero_stage=3", "parallel.zero_stage=1", "parallel.tensor=2"}) {
    std::map<int, uint64_t> bytes;
    std::map<std::string, std::string> expected;
    for (const int a_host : {4, 2, 3, 1}) {  // 3: hosts of three ranks and of one
      const std::string name = fmt::format("{}-{}", layout, a_host);
      std::vector<std::string> words = command(4, name, {layout, "train.micro_batch=1", "train.steps=6"});
      words.emplace_back("--ranks-per-host");
      words.push_back(std::to_string(a_host));
      const Result result = run(words);
      ASSERT_EQ(result.status, 0) << result.err;
      EXPECT_EQ(ranks_of(name), 4);
      if (a_host == 4) expected = lines(name);
      EXPECT_EQ(lines(name), expected) << name;
      bytes[a_host] = between_hosts(name);
    }
    EXPECT_EQ(bytes[4], 0u);
    EXPECT_GT(bytes[2], 0u);
    if (layout != "parallel.tensor=2") {  // whose data-parallel pairs are on two hosts each
      EXPECT_LT(bytes[2], bytes[1]);
    }
  }
}

// Killed in the middle of steps, and while a checkpoint is written: the job ends, and goes on as if nothing
// had been.
TEST_F(MpiRuns, AKilledRankEndsTheJobAndCostsTheStepsSinceTheLastCheckpoint) {
  const std::vector<std::string> settings{"parallel.pipeline=2"};
  train(2, "unbroken", settings);
  const auto expected = lines("unbroken");
  for (const int rank : {0, 1}) {
    const std::string name = fmt::format("killed-{}", rank);
    const std::vector<std::string> words = command(2, name, settings);
    const Result in_a_step = harmed(words, rank, SIGKILL, [&] { return has_step(name, 5); });
    EXPECT_THAT(in_a_step.err, ::testing::HasSubstr(fmt::format("process rank {}", rank)));
    harmed(words, rank, SIGKILL,
           [&] { return fs::exists(folder / name / "checkpoints/step-00000016.partial"); });
    const Result rest = run(words);
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(lines(name), expected);
  }
}

TEST_F(MpiRuns, AKilledRankEndsTheJobDuringReductions) {
  const std::vector<std::string> settings{"parallel.zero_stage=3", "train.steps=100000",
                                          "parallel.bucket_elements=1"};
  for (const int rank : {0, 1}) {
    const std::string name = fmt::format("killed-{}", rank);
    harmed(command(2, name, settings), rank, SIGKILL, [&] { return has_step(name, 7); });
  }
}

TEST_F(MpiRuns, ARankThatHangsIsNamed) {
  for (const char* layout : {"parallel.pipeline=2", "parallel.zero_stage=2"}) {
    const std::string name = fmt::format("hangs-{}", layout);
    const Result result = harmed(command(2, name, {layout, "train.steps=100000", "parallel.hang_seconds=2"}),
                                 1, SIGSTOP, [&] { return has_step(name, 3); });
    EXPECT_THAT(result.err, ::testing::HasSubstr("rank 1 has finished no operation for"));
    EXPECT_THAT(result.err, ::testing::ContainsRegex("megalith: rank 0 on .* of the group"));
  }
}

TEST_F(MpiRuns, AnyRankMayBeToldToStop) {
  const std::vector<std::string> words = command(2, "stopped", {"parallel.pipeline=2"});
  Process job(folder, words);
  ASSERT_TRUE(job.until([&] { return has_step("stopped", 5); }));
  ::kill(process_of(1), SIGTERM);
  EXPECT_EQ(job.wait().status, 0);
  train(1, "unbroken", {});
  const Result rest = run(words);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(lines("stopped"), lines("unbroken"));
}

// mpirun passes SIGUSR1 on to all ranks, which do not get it at the same time.
TEST_F(MpiRuns, MpirunCanBeToldToStopAllRanks) {
  const std::vector<std::string> settings{"parallel.zero_stage=3", "train.steps=300", "checkpoint.every=0"};
  train(2, "unbroken", settings);
  const std::vector<std::string> words = command(2, "stopped", settings);
  Process job(folder, words);
  ASSERT_TRUE(job.until([&] { return has_step("stopped", 5); }));
  job.send(SIGUSR1);
  const Result stopped = job.wait();
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_THAT(stopped.err, ::testing::HasSubstr("the state is saved"));
  EXPECT_FALSE(has_step("stopped", 300)) << "the run was over before the signal came";
  const Result rest = run(words);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, ::testing::HasSubstr("going on from step"));
  EXPECT_EQ(lines("stopped"), lines("unbroken"));
}

// SIGTERM and SIGINT reach the ranks a second later, and Open MPI itself does not call that success.
TEST_F(MpiRuns, MpirunThatIsInterruptedLeavesACheckpoint) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string name = fmt::format("signal-{}", signal);
    Process job(folder,
                command(2, name, {"parallel.pipeline=2", "train.steps=1000000", "checkpoint.every=0"}));
    ASSERT_TRUE(job.until([&] { return has_step(name, 5); }));
    job.send(signal);
    const Result stopped = job.wait();
    EXPECT_THAT(stopped.err, ::testing::HasSubstr("the state is saved"));
    EXPECT_TRUE(find_checkpoint(folder / name).has_value());
  }
}

TEST_F(MpiRuns, AGridThatDoesNotFitIsOneErrorWithStatusTwo) {
  const Result result = run(command(3, "grid", {"parallel.pipeline=2"}));
  EXPECT_EQ(result.status, 2);
  const std::string what = "3 ranks cannot be cut into parallel.pipeline = 2";
  const size_t at = result.err.find(what);
  EXPECT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(what, at + 1), std::string::npos) << result.err;
}

// The time line shows reductions inside of backward passes.
TEST_F(MpiRuns, ATraceShowsReductionsInsideOfBackwardPasses) {
  std::vector<std::string> words = command(2, "traced", {"train.steps=5", "parallel.bucket_elements=1"});
  words.emplace_back("--trace");
  words.emplace_back("trace.json");
  const Result result = run(words);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::ContainsRegex("data-parallel communication: [0-9]+% of .* s hidden"));
  const Json trace = Json::parse(slurp(folder / "trace.json"));
  std::map<int, int> inside;  // by rank
  std::map<int, std::vector<std::pair<double, double>>> backward;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] != "backward") continue;
    const double start = event["ts"].get<double>();
    backward[event["pid"].get<int>()].emplace_back(start, start + event["dur"].get<double>());
  }
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] != "reduce gradients") continue;
    const int rank = event["pid"].get<int>();
    for (const auto& [start, end] : backward[rank]) {
      const double at = event["ts"].get<double>();
      if (at > start && at < end) ++inside[rank];
    }
  }
  EXPECT_GT(inside[0], 0);
  EXPECT_GT(inside[1], 0);
}

}  // namespace
}  // namespace megalith
