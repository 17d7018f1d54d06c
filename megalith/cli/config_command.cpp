// megalith config
#include <CLI/CLI.hpp>
#include <cstdio>

#include "megalith/cli/commands.h"
#include "megalith/train/recipe.h"

namespace megalith {

namespace {

struct Options {
  std::string recipe;
  std::vector<std::string> overrides;
};

void run(const Options& options) {
  std::string text;
  if (options.recipe.empty() || options.recipe == "train") {
    Recipe defaults;
    text = "Keys of a recipe, with their defaults.\n\n" +
           config_reference([&](ConfigVisitor& visitor) { defaults.describe(visitor); });
  } else {
    text = Recipe::load(options.recipe, options.overrides).to_toml();
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_config_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("config", "List all recipe keys, or print a resolved recipe");
  command->add_option("recipe", options->recipe, "train (default): keys of recipes; or a recipe")
      ->option_text("COMMAND|RECIPE");
  command->add_option("--set", options->overrides, "Override a key of the recipe")->option_text("KEY=VALUE");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
