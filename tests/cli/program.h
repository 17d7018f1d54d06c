// Runs the program as a user would: its own process, a folder of its own, streams and exit status.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace megalith::testing {

namespace fs = std::filesystem;

inline std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Result {
  int status = -1;  // exit status; -1 when a signal ended the program
  int signal = 0;
  std::string out, err;
};

struct Setting {
  std::string input = {};                        // standard input
  std::optional<uint64_t> file_size_limit = {};  // bytes; a write beyond it fails as on a full disk
  std::optional<uint64_t> address_space = {};    // bytes, as by ulimit -v
  std::string output_file = {};                  // standard output goes there instead
  std::vector<std::string> launcher = {};        // a program with arguments that starts the program
};

/// A program that runs. Its standard error and output go to files of `folder`.
class Process {
 public:
  Process(const fs::path& folder, std::vector<std::string> arguments, const Setting& setting = {})
      : folder_(folder) {
    std::ofstream(folder / "stdin", std::ios::binary) << setting.input;
    // Nothing of an earlier program stays, also before this one has begun.
    for (const char* name : {"stdout", "stderr"}) std::ofstream(folder / name, std::ios::trunc);
    arguments.insert(arguments.begin(), MEGALITH_PROGRAM);
    arguments.insert(arguments.begin(), setting.launcher.begin(), setting.launcher.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string in = folder / "stdin", err = folder / "stderr";
    const std::string out = setting.output_file.empty() ? (folder / "stdout").string() : setting.output_file;
    id_ = ::fork();
    if (id_ != 0) return;
    const auto redirect = [](const std::string& path, int flags, int to) {
      const int from = ::open(path.c_str(), flags, 0644);
      if (from < 0 || ::dup2(from, to) < 0) ::_exit(126);
    };
    redirect(in, O_RDONLY, STDIN_FILENO);
    redirect(out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(err, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    // Threads that wait by spinning would make runs many times slower beside other tests.
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    if (setting.file_size_limit) {
      const rlimit limit{*setting.file_size_limit, *setting.file_size_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);  // the write fails with EFBIG
    }
    if (setting.address_space) {
      const rlimit limit{*setting.address_space, *setting.address_space};
      ::setrlimit(RLIMIT_AS, &limit);
    }
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (id_ > 0) {
      send(SIGKILL);
      wait();
    }
  }

  void send(int signal) const { ::kill(id_, signal); }
  bool running() {
    if (id_ > 0 && ::waitpid(id_, &wait_status_, WNOHANG) == id_) id_ = 0;
    return id_ > 0;
  }
  /// Waits until the condition holds or the program has ended. Returns whether the condition held.
  bool until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (std::chrono::steady_clock::now() < deadline) {
      if (condition()) return true;
      if (!running()) return condition();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return false;
  }
  /// What stands on standard error so far.
  bool has_said(const std::string& text) const {
    return slurp(folder_ / "stderr").find(text) != std::string::npos;
  }
  Result wait() {
    if (id_ > 0) ::waitpid(id_, &wait_status_, 0);
    id_ = 0;
    Result result;
    if (WIFEXITED(wait_status_)) result.status = WEXITSTATUS(wait_status_);
    if (WIFSIGNALED(wait_status_)) result.signal = WTERMSIG(wait_status_);
    result.out = slurp(folder_ / "stdout");
    result.err = slurp(folder_ / "stderr");
    return result;
  }

 private:
  fs::path folder_;
  pid_t id_ = 0;
  int wait_status_ = 0;
};

/// A folder for a test, in which the program runs.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::path(::testing::TempDir()) / "megalith_cli_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  Result run(const std::vector<std::string>& arguments, const Setting& setting = {}) const {
    return Process(folder, arguments, setting).wait();
  }
  /// Standard output of a command that must succeed.
  std::string output(const std::vector<std::string>& arguments, const Setting& setting = {}) const {
    const Result result = run(arguments, setting);
    EXPECT_EQ(result.status, 0) << "megalith " << fmt::format("{}", fmt::join(arguments, " ")) << "\n"
                                << result.err;
    return result.out;
  }
  /// Expects one line on standard error that holds `what`, nothing on standard output, and `status`.
  void expect_error(const std::vector<std::string>& arguments, const std::string& what, int status = 2,
                    const Setting& setting = {}) const {
    const Result result = run(arguments, setting);
    const std::string command = fmt::format("megalith {}", fmt::join(arguments, " "));
    EXPECT_EQ(result.status, status) << command << "\n" << result.err;
    EXPECT_EQ(result.signal, 0) << command;
    EXPECT_EQ(result.out, "") << command;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << command << "\n" << result.err;
    EXPECT_TRUE(result.err.starts_with("megalith: ")) << command << "\n" << result.err;
    EXPECT_NE(result.err.find(what), std::string::npos)
        << command << "\nexpected: " << what << "\nsaid: " << result.err;
  }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
    return name;
  }

  fs::path folder;
};

/// Sentences with a little structure, the same for a seed: enough for a tokenizer and a tiny model.
inline std::string sentences(size_t bytes, unsigned seed) {
  const std::vector<std::string> who = {"the king", "a shepherd", "the sea", "Anna",
                                        "na\u00efve J\u00fcrgen"};
  const std::vector<std::string> what = {"saw", "loved", "feared", "built", "forgot"};
  const std::vector<std::string> whom = {"the city", "a lamb", "the light \U0001F600", "1851 ships",
                                         "\u65e5\u672c"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += who[random() % who.size()] + " " + what[random() % what.size()] + " " +
            whom[random() % whom.size()] + (random() % 4 == 0 ? ".\n" : ", and ");
  }
  return text + "the end.\n";
}

}  // namespace megalith::testing
