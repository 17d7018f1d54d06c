// megalith train
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "megalith/base/log.h"
#include "megalith/cli/commands.h"
#include "megalith/train/trainer.h"

namespace megalith {

namespace {

struct Options {
  std::string recipe;
  std::vector<std::string> overrides;
  TrainOptions train;
  std::string output;
  bool dry_run = false;
};

void run(Options options) {
  Recipe recipe = Recipe::load(options.recipe, options.overrides);
  if (options.dry_run) {
    const std::string text = describe_run(recipe);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  options.train.output = options.output.empty()
                             ? std::filesystem::path("runs") / std::filesystem::path(options.recipe).stem()
                             : std::filesystem::path(options.output);
  const TrainOutcome outcome = train(recipe, options.train);
  const std::string directory = options.train.output.string();
  if (outcome.interrupted) {
    log_info(
        "stopped at step {}; the state is saved. To go on, give the same command again: megalith train {} "
        "--output {}",
        outcome.steps, options.recipe, directory);
  } else {
    log_info(
        "done: {} steps, in {}. Next: megalith generate --model {} --prompt \"...\", or megalith report {}",
        outcome.steps, directory, directory, directory);
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
          "auto: go on from the newest checkpoint of the output, or begin; none: begin; or a checkpoint to "
          "begin from")
      ->option_text("auto|none|DIR");
  command->add_flag("--dry-run", options->dry_run,
                    "Print parameters, batches and predicted memory, and stop");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
