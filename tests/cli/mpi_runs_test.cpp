// Training under mpirun: layouts of processes give the run of one process, and every command reads what they
// leave.
#include <cmath>
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
using Json = nlohmann::json;
namespace fs = testing::fs;

class MpiRuns : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    // Test machines may run as root and have fewer cores than ranks.
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    write("text.txt", testing::sentences(20000, 3));
    output(
        {"tokenizer", "train", "--input", "text.txt", "--vocab-size", "300", "--output", "tokenizer.json"});
    output({"data", "tokenize", "--input", "text.txt", "--tokenizer", "tokenizer.json", "--output", "words"});
    write("recipe.toml", R"([model]
num_layers = 2
hidden_size = 32
num_heads = 4
max_positions = 16
hidden_dropout = 0.1
attention_dropout = 0.1
embedding_dropout = 0.1
vocab_multiple = 1
[data]
tokenizer = "tokenizer.json"
train = "words_text_document"
split = "80,20,0"
[train]
steps = 8
micro_batch = 1
global_batch = 4
precision = "fp32"
threads = 1
[optimizer]
epsilon = 1e-4 # above the noise of gradients that are zero
[checkpoint]
every = 4
keep_last = 4
[log]
every = 1
validate_every = 4
validation_samples = 6
)");
  }

  Setting ranks(int n, const std::vector<std::string>& options = {}) const {
    Setting setting;
    setting.launcher = {MEGALITH_MPIEXEC, "-n", std::to_string(n), "--oversubscribe"};
    setting.launcher.insert(setting.launcher.end(), options.begin(), options.end());
    return setting;
  }
  std::vector<std::string> train(const std::string& run, const std::vector<std::string>& layout = {}) const {
    std::vector<std::string> arguments = {"train", "recipe.toml", "--output", run};
    for (const std::string& key : layout) arguments.insert(arguments.end(), {"--set", "parallel." + key});
    return arguments;
  }
  std::vector<Json> log(const std::string& run) const {
    std::vector<Json> lines;
    std::istringstream text(slurp(folder / run / "log.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::vector<double> logged(const std::string& run, const std::string& key) const {
    std::vector<double> values;
    for (const Json& line : log(run)) {
      if (line.contains(key)) values.push_back(line[key].get<double>());
    }
    return values;
  }
  // Also fails when the run did not have its ranks: mpirun may start processes that do not know each other.
  void expect_same(const std::string& run, const std::string& one, int n, size_t from_step = 0) const {
    for (const char* key : {"loss", "gradient_norm", "validation_loss"}) {
      const std::vector<double> got = logged(run, key);
      std::vector<double> expected = logged(one, key);
      ASSERT_FALSE(expected.empty());
      if (from_step > 0)
        expected.erase(expected.begin(), expected.end() - static_cast<std::ptrdiff_t>(got.size()));
      ASSERT_EQ(got.size(), expected.size()) << run << ": " << key;
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << run << ": " << key << " " << i;
    }
    int world = 0;
    for (const Json& line : log(run)) {
      if (line.value("kind", "") == "profile") world = line["communication"][0]["ranks"].get<int>();
    }
    EXPECT_EQ(world, n) << run;
  }
};

TEST_F(MpiRuns, LayoutsOfProcessesTrainAsOneDoes) {
  output(train("one"));
  output(train("tensor", {"tensor=2"}), ranks(2));
  expect_same("tensor", "one", 2);
  output(train("grid", {"tensor=2", "sequence_parallel=true", "zero_stage=1"}), ranks(4));
  expect_same("grid", "one", 4);
  output(train("stages", {"tensor=2", "pipeline=2"}), ranks(4));
  expect_same("stages", "one", 4);
  output(train("tcp", {"tensor=2", "sequence_parallel=true"}), ranks(2, {"--mca", "btl", "tcp,self"}));
  expect_same("tcp", "one", 2);
}

// What ranks leave is a model and a checkpoint like any other.
TEST_F(MpiRuns, EveryCommandReadsACheckpointOfRanks) {
  output(train("one"));
  output(train("ranks", {"tensor=2", "sequence_parallel=true", "zero_stage=3"}), ranks(4));
  EXPECT_NE(output({"inspect", "ranks", "--verify"}).find("all correct"), std::string::npos);
  output({"convert", "--from", "ranks", "--to", "joined/checkpoints/step-00000004", "--consolidate"});
  EXPECT_TRUE(fs::exists(folder / "joined/checkpoints/step-00000004/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "joined/checkpoints/step-00000004/optimizer.safetensors"));
  output({"convert", "--from", "ranks", "--to", "exported"});
  const auto text = [&](const std::string& model) {
    return output(
        {"generate", "--model", model, "--prompt", "the king", "--max-tokens", "8", "--temperature", "0"});
  };
  const auto perplexity = [&](const std::string& model) {
    return Json::parse(output({"eval", "perplexity", "--model", model, "--input", "text.txt", "--json"}));
  };
  const std::string expected = text("ranks");
  EXPECT_EQ(text("joined"), expected);
  EXPECT_EQ(text("exported"), expected);
  EXPECT_EQ(perplexity("joined"), perplexity("ranks"));
  EXPECT_NEAR(perplexity("ranks")["results"][0]["token_perplexity"].get<double>(),
              perplexity("one")["results"][0]["token_perplexity"].get<double>(), 0.01);
  expect_error({"convert", "--from", "exported", "--to", "again", "--consolidate"}, "exported is none");
  // Begun by four ranks, ended by three, and by one.
  for (const auto& [run, n] : {std::pair<std::string, int>{"three", 3}, {"alone", 1}}) {
    std::vector<std::string> arguments = train(run);
    arguments.insert(arguments.end(), {"--resume", "ranks/checkpoints/step-00000004"});
    output(arguments, n > 1 ? ranks(n) : Setting());
    expect_same(run, "one", n, 4);
  }
}

TEST_F(MpiRuns, ALayoutThatCannotWorkIsSaidOnce) {
  const auto refused = [&](int n, const std::vector<std::string>& layout, const std::string& what) {
    const Result result = run(train("refused", layout), ranks(n));
    EXPECT_EQ(result.status, 2) << result.err;
    size_t said = 0;
    for (size_t at = 0; (at = result.err.find("megalith: ", at)) != std::string::npos; ++at) ++said;
    EXPECT_EQ(said, 1u) << result.err;
    EXPECT_NE(result.err.find(what), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(folder / "refused"));
  };
  refused(3, {"tensor=2"}, "3 ranks cannot be cut");
  refused(3, {"tensor=3"}, "possible are 1, 2, 4");
}

}  // namespace
}  // namespace megalith
