#include "megalith/cli/bench_parallel.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "megalith/base/cpu.h"
#include "megalith/base/file.h"
#include "megalith/base/large_blocks.h"
#include "megalith/base/log.h"
#include "megalith/cli/measurement.h"
#include "megalith/cli/random_dataset.h"
#include "megalith/comm/mpi_communicator.h"
#include "megalith/train/training_step.h"

namespace megalith {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kRanks = 2;

struct Layout {
  const char* name;
  bool one_process;
  int64_t micro_batch;
  ParallelConfig parallel;
  /// Which layout it is compared with, and the share of its speed that the layout could reach at best.
  size_t reference = 0;
  double bound = 1.0;
};

std::vector<Layout> layouts() {
  std::vector<Layout> all{{"one process", true, 8, {}}, {"one process, 8 micro-batches", true, 1, {}, 1}};
  for (const int64_t stage : {0, 1, 2, 3}) {
    static constexpr const char* kNames[] = {"data parallel, ZeRO 0", "data parallel, ZeRO 1",
                                             "data parallel, ZeRO 2", "data parallel, ZeRO 3"};
    Layout layout{kNames[stage], false, 4, {}};
    layout.parallel.zero_stage = stage;
    all.push_back(layout);
  }
  Layout tensor{"tensor parallel", false, 8, {}};
  tensor.parallel.tensor = kRanks;
  all.push_back(tensor);
  // Stages are idle for p - 1 of m + p - 1 slots.
  Layout pipeline{"pipeline, 8 micro-batches", false, 1, {}, 1, 8.0 / (8 + kRanks - 1)};
  pipeline.parallel.pipeline = kRanks;
  pipeline.parallel.layer_split = "cost";
  all.push_back(pipeline);
  return all;
}

Recipe recipe_of(const Layout& layout) {
  Recipe recipe;
  recipe.model.vocab_size = 50257;
  recipe.model.num_layers = 12;
  recipe.model.hidden_size = 768;
  recipe.model.num_heads = 12;
  recipe.model.max_positions = 1024;
  recipe.data.sequence_length = 256;
  recipe.train.steps = 1;
  recipe.train.micro_batch = layout.micro_batch;
  recipe.train.global_batch = 8;
  recipe.parallel = layout.parallel;
  recipe.resolve();
  recipe.model.resolve();
  return recipe;
}

// Seconds of each timed step of a layout. Ranks that have no part in it wait.
std::vector<double> time_steps(const Layout& layout, const BatchSource& source, int64_t steps,
                               Communicator& world, double& hidden_share) {
  const Recipe recipe = recipe_of(layout);
  const auto self = make_self_communicator();
  std::vector<double> seconds;
  if (!layout.one_process || world.rank() == 0) {
    TrainingArenas arenas;
    const ExecContext exec{arenas.workspace, layout.one_process ? kRanks : 1};
    ParallelGroups groups(layout.one_process ? *self : world, static_cast<int>(recipe.parallel.pipeline),
                          static_cast<int>(recipe.parallel.tensor));
    TrainingStep step(recipe, arenas, exec, groups);
    step.initialize();
    TrainingState state;
    for (int64_t i = 0; i < steps + 1; ++i) {
      groups.world.barrier();
      const Clock::time_point start = Clock::now();
      const StepResult result = step.run(source, state, recipe.train.global_batch, 1e-4, 1.0);
      groups.world.barrier();
      check(result.not_finite.empty(), "{} is not finite", result.not_finite);
      if (i > 0) seconds.push_back(seconds_since(start));  // The first step faults the memory in.
      state.step += 1;
      state.updates += 1;
      state.consumed_samples += recipe.train.global_batch;
    }
    hidden_share = step.communication_times().hidden_share();
  }
  world.barrier();
  return seconds;
}

struct ReductionTimes {
  double shared_memory = 0, mpi = 0, mpi_keeping_blocks = 0, copy = 0;
};

// 64 MB of fp32: this program's all-reduce, MPI's, and a plain copy on every rank at once. MPI takes a buffer
// from malloc, and so is measured with malloc's own settings and with those that this program makes.
ReductionTimes time_reductions(Communicator& world) {
  constexpr int64_t kElements = int64_t{16} << 20;
  constexpr int kRounds = 15;
  Arena arena("bench");
  const TensorView data = arena.allocate_zero(DType::f32, {kElements}),
                   copy = arena.allocate_zero(DType::f32, {kElements});
  std::vector<double> own, mpi, keeping, plain;
  // Blocks that were kept once would serve what comes later too: malloc's own settings come first.
  for (const LargeBlocks blocks : {LargeBlocks::returned, LargeBlocks::kept}) {
    set_large_blocks(blocks);
    for (int round = 0; round < kRounds + 1; ++round) {
      const auto time = [&](std::vector<double>& seconds, auto&& work) {
        world.barrier();
        const Clock::time_point start = Clock::now();
        work();
        world.barrier();
        if (round > 0) seconds.push_back(seconds_since(start));
      };
      time(own, [&] { world.all_reduce(data); });
      time(blocks == LargeBlocks::kept ? keeping : mpi, [&] { MpiSession::plain_all_reduce(data); });
      time(plain, [&] { std::memcpy(copy.raw(), data.raw(), data.bytes()); });
    }
  }
  return {median(own), median(mpi), median(keeping), median(plain)};
}

[[noreturn]] void start_ranks(const ParallelBenchOptions& options) {
  std::vector<std::string> words{"mpirun"};
  // Containers run as root; Open MPI wants to hear that this is meant.
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  for (const char* word : {"-n", "2", "--oversubscribe", "--bind-to", "none"}) words.emplace_back(word);
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  for (const char* word : {"bench", "parallel", "--steps"}) words.emplace_back(word);
  words.push_back(std::to_string(options.steps));
  words.emplace_back("--rounds");
  words.push_back(std::to_string(options.rounds));
  if (!options.json_file.empty()) {
    words.emplace_back("--json");
    words.push_back(options.json_file);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  fail_input("cannot start mpirun: {}", std::strerror(errno));
}

void bench_ranks(const ParallelBenchOptions& options, Communicator& world) {
  check_input(world.size() == kRanks, "bench parallel compares {} ranks, not {}", kRanks, world.size());
  world.set_hang_seconds(600);  // ranks without a part in a layout wait for the others
  const std::vector<Layout> all = layouts();
  const RandomDataset dataset(50257, 256 * 8 * 16 + 1);
  BatchSourceOptions source_options;
  source_options.sequence_length = 256;
  const BatchSources sources = open_batch_sources({{dataset.prefix(), 1.0}}, {}, {}, "", source_options);
  const ReductionTimes reductions = time_reductions(world);

  std::vector<std::vector<double>> ratios(all.size()), rates(all.size());
  std::vector<double> hidden(all.size(), 0);
  for (int64_t round = 0; round < options.rounds; ++round) {
    std::vector<double> rate(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<double> seconds = time_steps(all[i], *sources.train, options.steps, world, hidden[i]);
      if (world.rank() != 0) continue;
      rate[i] = 8 * 256 / median(seconds);
      log_info("round {} of {}: {}, {:.0f} tokens/s", round + 1, options.rounds, all[i].name, rate[i]);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      rates[i].push_back(rate[i]);
      ratios[i].push_back(rate[i] / rate[all[i].reference]);
    }
  }
  if (world.rank() != 0) return;
  if (options.rounds > 0) {
    fmt::print("GPT-2 124M, bf16, 8 x 256 tokens; {} ranks of 1 thread, one process of {}\n", kRanks, kRanks);
    fmt::print("{:<30}{:>10}{:>22}{:>10}{:>10}\n", "layout", "tokens/s", "share of one process", "of bound",
               "hidden");
  }
  Json results = Json::array();
  for (size_t i = 0; options.rounds > 0 && i < all.size(); ++i) {
    const double share = median(ratios[i]), of_bound = share / all[i].bound;
    fmt::print("{:<30}{:>10.0f}{:>22.3f}{:>10.3f}{:>10.2f}\n", all[i].name, median(rates[i]), share, of_bound,
               hidden[i]);
    results.push_back({{"layout", all[i].name},
                       {"tokens_per_second", median(rates[i])},
                       {"compared_with", all[all[i].reference].name},
                       {"share", share},
                       {"share_of_bound", of_bound},
                       {"hidden_communication", hidden[i]}});
  }
  const double against_mpi = reductions.mpi / reductions.shared_memory,
               against_keeping = reductions.mpi_keeping_blocks / reductions.shared_memory,
               of_copy = reductions.copy / reductions.shared_memory;
  fmt::print(
      "all-reduce of 64 MB fp32: {:.2f} ms; MPI_Allreduce {:.2f} ms ({:.1f} times as long), {:.2f} ms "
      "({:.1f}) "
      "where malloc keeps\nlarge blocks; a copy {:.2f} ms ({:.2f} of its speed)\n",
      1e3 * reductions.shared_memory, 1e3 * reductions.mpi, against_mpi, 1e3 * reductions.mpi_keeping_blocks,
      against_keeping, 1e3 * reductions.copy, of_copy);
  results.push_back({{"all_reduce_bytes", 64 << 20},
                     {"seconds", reductions.shared_memory},
                     {"mpi_seconds", reductions.mpi},
                     {"mpi_seconds_keeping_large_blocks", reductions.mpi_keeping_blocks},
                     {"copy_seconds", reductions.copy},
                     {"times_mpi", against_mpi},
                     {"share_of_copy", of_copy}});
  if (options.json_file.empty()) return;
  write_file_atomic(options.json_file, Json{{"machine", cpu_model()}, {"results", results}}.dump(2) + "\n");
}

}  // namespace

void bench_parallel(const ParallelBenchOptions& options) {
  if (!started_by_mpi()) start_ranks(options);
  const MpiSession session;
  const std::unique_ptr<Communicator> world = MpiSession::world();
  try {
    bench_ranks(options, *world);
  } catch (const InputError&) {
    throw;  // the same on all ranks
  } catch (const std::exception& error) {
    log_line("megalith: ", fmt::format("rank {}: {}", world->rank(), error.what()));
    MpiSession::abort(1);
  }
}

}  // namespace megalith
