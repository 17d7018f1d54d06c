// megalith train
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "megalith/base/cpu.h"
#include "megalith/base/log.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/whole_number.h"
#include "megalith/comm/agreement.h"
#include "megalith/comm/mpi_communicator.h"
#include "megalith/train/run_description.h"
#include "megalith/train/trainer.h"

namespace megalith {

namespace {

struct Options {
  std::string recipe;
  std::vector<std::string> overrides;
  TrainOptions train;
  std::string output;
  bool dry_run = false;
  int ranks = 0;
  std::string transport = "auto";
  int ranks_per_host = 0;
};

// A word of a command as a shell wants it.
std::string shell_word(const std::string& word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%") ==
      std::string::npos) {
    return word;
  }
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void report(const Options& options, const Recipe& recipe, const TrainOutcome& outcome) {
  const std::string directory = options.train.output.string();
  if (outcome.interrupted) {
    std::string again = "megalith train " + shell_word(options.recipe);
    for (const std::string& override : options.overrides) again += " --set " + shell_word(override);
    log_info("stopped at step {}; the state is saved. To go on: {} --output {}", outcome.steps, again,
             shell_word(directory));
  } else {
    log_info("done: {} steps, in {}. Next: megalith {} --model {} {}, or megalith report {}", outcome.steps,
             directory, recipe.model.causal ? "generate" : "embed", directory,
             recipe.model.causal ? "--prompt \"...\"" : "--input FILE", directory);
  }
}

// Errors that all ranks know are said once; one that only this rank has ends the job with its name.
void train_on_mpi_ranks(const Options& options) {
  int status = 0;
  {
    const MpiSession session;
    const std::unique_ptr<Communicator> world = MpiSession::world(
        {.shared_memory = options.transport == "auto", .ranks_per_host = options.ranks_per_host});
    try {
      Recipe recipe;
      agree(*world, [&] { recipe = Recipe::load(options.recipe, options.overrides); });
      const TrainOutcome outcome = train(recipe, options.train, *world);
      if (world->rank() == 0) report(options, recipe, outcome);
    } catch (const AgreedError& error) {
      if (world->rank() == 0) log_line("megalith: ", error.what());
      status = error.wrong_input() ? 2 : 1;
    } catch (const InputError& error) {
      if (world->size() > 1) {
        log_line("megalith: ", fmt::format("rank {} on {}: {}", world->rank(), host_name(), error.what()));
        MpiSession::abort(2);
      }
      log_line("megalith: ", error.what());
      status = 2;
    } catch (const std::exception& error) {
      log_line("megalith: ", fmt::format("rank {} on {}: {}", world->rank(), host_name(), error.what()));
      MpiSession::abort(1);
    }
  }
  if (status != 0) throw ExitStatus{status};
}

void run(Options options) {
  options.train.output = options.output.empty()
                             ? std::filesystem::path("runs") / std::filesystem::path(options.recipe).stem()
                             : std::filesystem::path(options.output);
  if (options.dry_run) {
    const std::string text = describe_run(Recipe::load(options.recipe, options.overrides), options.ranks);
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else if (started_by_mpi()) {
    train_on_mpi_ranks(options);
  } else {
    const Recipe recipe = Recipe::load(options.recipe, options.overrides);
    report(options, recipe, train(recipe, options.train));
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a model as a recipe says");
  command->add_option("recipe", options->recipe, "Recipe (TOML); megalith config lists all keys")
      ->required()
      ->option_text("RECIPE");
  command->add_option("--set", options->overrides, "Override a key: --set train.steps=100")
      ->option_text("KEY=VALUE");
  command->add_option("--output", options->output, "Run directory; default runs/RECIPE")->option_text("DIR");
  command
      ->add_option(
          "--resume", options->train.resume,
          "auto (default): from the newest checkpoint of\nthe output, or begin; none: begin; or a run or\n"
          "checkpoint to begin from")
      ->option_text("auto|none|DIR");
  command->add_option("--trace", options->train.trace, "Write a time line of all ranks (Chrome trace)")
      ->option_text("FILE");
  CLI::Option* dry_run =
      command->add_flag("--dry-run", options->dry_run,
                        "Print parameters, batches, who holds what,\nmemory, messages, and stop");
  command
      ->add_option("--ranks", options->ranks,
                   "With --dry-run: ranks to describe; default as\nfew as the layout takes")
      ->option_text("N")
      ->check(whole_number(1, 1 << 20))
      ->needs(dry_run);
  command
      ->add_option(
          "--transport", options->transport,
          "auto (default): shared memory between ranks of a\nhost; mpi: MPI there too (where /dev/shm is\n"
          "too small)")
      ->option_text("auto|mpi")
      ->check(CLI::IsMember({"auto", "mpi"}));
  command
      ->add_option(
          "--ranks-per-host", options->ranks_per_host,
          "Take every N neighbouring ranks of a host for a\nhost of their own: to try many hosts on one")
      ->option_text("N")
      ->check(whole_number(1, 1 << 20));
  command->callback([options] { run(*options); });
}

}  // namespace megalith
