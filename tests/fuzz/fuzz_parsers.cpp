// Feeds damaged files to the parsers of files and saves those that do anything but parse or refuse.
//
// The inputs run in a child process. When one ends it, or takes too long, the parent makes the same input
// again from its number, saves it, and goes on behind it.
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "tests/fuzz/allocations.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/parsers.h"

namespace megalith::fuzz {

namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
constexpr double kSeconds = 3;  // Sanitizers slow a program down.
#else
constexpr double kSeconds = 0.3;
#endif
constexpr int kStuckSeconds = 60;
constexpr int kMostFaults = 200;

struct Options {
  std::string parser = "all";
  uint64_t inputs = 3000;
  uint64_t first = 0;
  uint64_t seed = 1;
  fs::path output = "faults";
  fs::path tests;
  std::string file, shrink;
};

// What the child tells the parent.
struct Shared {
  std::atomic<uint64_t> number, accepted, refused, faults;
  std::atomic<double> slowest;
  std::atomic<size_t> largest;
};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Outcome {
  bool accepted = false;
  std::string fault, refusal;
  double seconds = 0;
  size_t bytes = 0;
};

Outcome try_input(const Parser& parser, const std::string& input) {
  Outcome outcome;
  const size_t most = parser.constant + kFactor * input.size();
  const double begin = processor_seconds();
  // Some room above the limit, so that its breach is told from a failure of the parser.
  begin_counting(most + (size_t{256} << 20));
  try {
    parser.parse(std::as_bytes(std::span(input)));
    outcome.accepted = true;
  } catch (const InputError& error) {
    outcome.refusal = error.what();
  } catch (const Error& error) {
    if (!parser.may_fail) outcome.fault = fmt::format("Error: {}", error.what());
  } catch (const std::bad_alloc&) {
    outcome.fault = "asks for memory without bounds";
  } catch (const std::exception& error) {
    outcome.fault = fmt::format("{}: {}", typeid(error).name(), error.what());
  } catch (...) {
    outcome.fault = "throws something else";
  }
  outcome.bytes = stop_counting();
  outcome.seconds = processor_seconds() - begin;
  if (outcome.fault.empty() && outcome.bytes > most) {
    outcome.fault = fmt::format("takes {} bytes of memory for a file of {}", outcome.bytes, input.size());
  }
  if (outcome.fault.empty() && outcome.seconds > kSeconds) {
    outcome.fault = fmt::format("takes {:.2f} s for a file of {} bytes", outcome.seconds, input.size());
  }
  return outcome;
}

void report(const Options& options, const Parser& parser, uint64_t number, const std::string& input,
            const std::string& fault) {
  fs::create_directories(options.output);
  const fs::path path = options.output / fmt::format("{}-{}-{}", parser.name, options.seed, number);
  write_file_atomic(path, input);
  fmt::print("FAULT {}: {}\n", path.string(), fault.substr(0, 500));
  std::fflush(stdout);
}

// What parsers warn of, and sanitizers report, goes to a file; and no fault takes the machine's memory.
fs::path log_path(const Options& options, const Parser& parser) {
  return options.output / fmt::format("{}.log", parser.name);
}

void confine(const Options& options, const Parser& parser) {
  fs::create_directories(options.output);
  if (std::freopen(log_path(options, parser).c_str(), "a", stderr) == nullptr) std::_Exit(96);
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit limit{rlim_t{4} << 30, rlim_t{4} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

// Runs inputs from shared.number on; ends the process.
[[noreturn]] void run_child(const Options& options, const Parser& parser, const Mutator& mutator,
                            Shared& shared) {
  confine(options, parser);
  std::set<std::string> seen;
  for (uint64_t number = shared.number; number < options.first + options.inputs; ++number) {
    shared.number = number;
    const std::string input = mutator.input(number);
    const Outcome outcome = try_input(parser, input);
    if (!outcome.fault.empty()) {
      ++shared.faults;
      // One of a kind is enough: digits do not make another kind.
      std::string kind = outcome.fault.substr(0, 60);
      std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
      if (seen.insert(kind).second) report(options, parser, number, input, outcome.fault);
    } else {
      ++(outcome.accepted ? shared.accepted : shared.refused);
    }
    if (outcome.seconds > shared.slowest) shared.slowest = outcome.seconds;
    if (outcome.bytes > shared.largest) shared.largest = outcome.bytes;
  }
  shared.number = options.first + options.inputs;
  std::exit(0);  // With the destructors, so that leaks are found.
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("ends by signal {}", WTERMSIG(status));
  return fmt::format("ends with exit status {}", WEXITSTATUS(status));
}

// Waits for the child and tells how it ended; empty when all is well.
std::string watch(pid_t child, const Options& options, const Parser& parser, const Shared& shared) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto moved = begin, told = begin;
  const uint64_t first = shared.number;
  uint64_t last = first;
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  while (true) {
    pollfd poll_child{descriptor, POLLIN, 0};
    ::poll(&poll_child, 1, 1000);
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      ::close(descriptor);
      return status == 0 ? std::string() : how_it_ended(status);
    }
    const auto now = Clock::now();
    const uint64_t number = shared.number;
    if (number != last) moved = now;
    last = number;
    if (now - moved > std::chrono::seconds(kStuckSeconds)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      ::close(descriptor);
      return fmt::format("does not end within {} s", kStuckSeconds);
    }
    if (now - told > std::chrono::seconds(10)) {
      told = now;
      fmt::print("{}: {} of {} inputs, {:.0f}/s\n", parser.name, number - options.first, options.inputs,
                 static_cast<double>(number - first) / std::chrono::duration<double>(now - begin).count());
      std::fflush(stdout);
    }
  }
}

// Whether, and how, the parser goes wrong; with `accepts`, to refuse is wrong too.
std::string fault_of(const Parser& parser, const std::string& input, bool accepts = false) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  check(child >= 0, "cannot fork");
  if (child == 0) {
    ::alarm(10);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(96);
    const Outcome outcome = try_input(parser, input);
    if (accepts) ::_exit(outcome.accepted && outcome.fault.empty() ? 0 : 97);
    ::_exit(outcome.fault.empty() ? 0 : outcome.fault.starts_with("takes") ? 99 : 98);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? std::string() : how_it_ended(status);
}

// The number of faults.
uint64_t run_parser(const Options& options, const Parser& parser) {
  const Mutator mutator(parser.name, options.tests, options.seed);
  auto& shared = *static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (&shared) Shared{};
  shared.number = options.first;
  for (const std::string& original : mutator.originals()) {
    if (fault_of(parser, original, true).empty()) continue;
    report(options, parser, ~uint64_t{0}, original, "a good file is refused");
    ++shared.faults;
  }
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t end = options.first + options.inputs;
  while (true) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    check(child >= 0, "cannot fork");
    if (child == 0) run_child(options, parser, mutator, shared);
    const std::string ended = watch(child, options, parser, shared);
    if (ended.empty()) break;
    const uint64_t number = shared.number;
    ++shared.faults;
    if (number >= end) {
      fmt::print("FAULT {}: {} behind the last input (a leak?)\n", parser.name, ended);
      break;
    }
    report(options, parser, number, mutator.input(number), ended);
    shared.number = number + 1;
    if (shared.faults > kMostFaults) {
      fmt::print("{}: stopped after {} faults\n", parser.name, shared.faults.load());
      break;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (shared.faults == 0) fs::remove(log_path(options, parser));
  const uint64_t faults = shared.faults, done = shared.number - options.first;
  fmt::print(
      "{}: {} inputs of seed {} in {:.1f} s ({:.0f}/s): {} accepted, {} refused, {} faults; at most {:.0f} "
      "ms "
      "and {:.1f} MiB\n",
      parser.name, done, options.seed, seconds, static_cast<double>(done) / seconds, shared.accepted.load(),
      shared.refused.load(), faults, 1e3 * shared.slowest, static_cast<double>(shared.largest) / (1 << 20));
  std::fflush(stdout);
  ::munmap(&shared, sizeof(Shared));
  return faults;
}

// Leaves out what the fault does not need.
void shrink(const Parser& parser, const fs::path& path) {
  std::string input = read_file(path);
  const std::string fault = fault_of(parser, input);
  check_input(!fault.empty(), "{} is no fault", path.string());
  for (size_t part = std::max<size_t>(1, input.size() / 2); part > 0; part /= 2) {
    for (size_t at = 0; at < input.size();) {
      std::string less = input;
      less.erase(at, part);
      if (fault_of(parser, less) == fault) {
        input = less;
      } else {
        at += part;
      }
    }
  }
  const fs::path small = path.string() + ".small";
  write_file_atomic(small, input);
  fmt::print("{}: {} bytes, {}\n", small.string(), input.size(), fault);
}

int run(const Options& options) {
  uint64_t faults = 0;
  bool known = false;
  for (const Parser& parser : parsers()) {
    if (options.parser != "all" && options.parser != parser.name) continue;
    known = true;
    if (!options.shrink.empty()) {
      shrink(parser, options.shrink);
    } else if (!options.file.empty()) {
      const Outcome outcome = try_input(parser, read_file(options.file));
      fmt::print("{}: {}, {:.1f} ms, {} bytes of memory\n", parser.name,
                 !outcome.fault.empty() ? "FAULT: " + outcome.fault
                 : outcome.accepted     ? "accepted"
                                        : "refused (" + outcome.refusal + ")",
                 1e3 * outcome.seconds, outcome.bytes);
      faults += outcome.fault.empty() ? 0 : 1;
    } else {
      faults += run_parser(options, parser);
    }
  }
  check_input(known, "there is no parser \"{}\"", options.parser);
  return faults == 0 ? 0 : 1;
}

}  // namespace

}  // namespace megalith::fuzz

int main(int argc, char** argv) {
  using namespace megalith;
  fuzz::Options options;
  std::string names = "all";
  for (const fuzz::Parser& parser : fuzz::parsers()) names += ", " + std::string(parser.name);
  if (const char* data = std::getenv("MEGALITH_TEST_DATA")) options.tests = data;
  CLI::App app(
      "Feeds damaged files to the parsers of files; exit status 1 when one does anything but parse or "
      "refuse.");
  app.add_option("--parser", options.parser, names);
  app.add_option("--inputs", options.inputs, "How many (of each parser)");
  app.add_option("--first", options.first, "Number of the first input");
  app.add_option("--seed", options.seed, "Inputs of one seed and number are the same");
  app.add_option("--output", options.output, "Directory for inputs that are faults");
  app.add_option("--file", options.file, "Runs the parser on this file only");
  app.add_option("--shrink", options.shrink, "Makes this fault smaller, as FILE.small");
  app.add_option("--tests", options.tests, "Directory tests/ of the sources (else MEGALITH_TEST_DATA)");
  CLI11_PARSE(app, argc, argv);
  // Millions of small files: in memory where there is such a place.
  const std::filesystem::path memory = "/dev/shm";
  std::string scratch =
      (std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
      "megalith-fuzz-XXXXXX";
  if (::mkdtemp(scratch.data()) == nullptr) {
    fmt::print(stderr, "cannot make {}\n", scratch);
    return 1;
  }
  fuzz::set_scratch(scratch);
  int status = 2;
  try {
    status = fuzz::run(options);
  } catch (const Error& error) {
    fmt::print(stderr, "fuzz_parsers: {}\n", error.what());
  }
  std::filesystem::remove_all(scratch);
  return status;
}
