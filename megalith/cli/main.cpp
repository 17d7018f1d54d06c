// megalith: the program.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "megalith/base/config.h"
#include "megalith/base/error.h"
#include "megalith/base/large_blocks.h"
#include "megalith/base/log.h"
#include "megalith/cli/commands.h"

namespace {

constexpr int kDone = 0, kFailed = 1, kWrongInput = 2;

// What is wrong with the command line, in one line.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  // The innermost command that was recognised.
  const CLI::App* command = &app;
  std::string path = "megalith";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  std::string what = error.what();
  // An unknown word is reported before what is missing because of it.
  const std::vector<std::string> unknown = app.remaining(true);
  if (!unknown.empty()) {
    const bool option = unknown.front().starts_with("-");
    const auto every = [](const CLI::App*) { return true; };
    std::vector<std::string> known;
    if (option) {
      for (const CLI::Option* each : command->get_options()) {
        for (const std::string& name : each->get_lnames()) known.push_back("--" + name);
      }
    } else {
      for (const CLI::App* each : command->get_subcommands(every)) known.push_back(each->get_name());
    }
    const bool wants_command = !command->get_subcommands(every).empty();
    what = fmt::format("{}{} {}", option || wants_command ? "unknown " : "unexpected ",
                       option          ? "option"
                       : wants_command ? "command"
                                       : "argument",
                       unknown.front());
    if (const auto near = megalith::nearest_word(unknown.front(), known))
      what += "; did you mean " + *near + "?";
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  return fmt::format("{} (see {} --help)", what, path);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Megalith trains, evaluates and runs transformer language models.\n"
      "Results go to standard output, everything else to standard error.",
      "megalith");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  app.get_formatter()->column_width(30);
  app.set_version_flag("--version", "megalith 0.1.0");
  app.footer(
      "Exit status: 0 done (also after a clean stop by SIGINT, SIGTERM or\n"
      "SIGUSR1), 1 failed while running, 2 wrong input.\n"
      "Environment: MEGALITH_ISA=v3|v4|bf16|amx lowers the instruction-set level of\n"
      "kernels; OMP_NUM_THREADS sets the number of threads.");
  megalith::add_tokenizer_command(app);
  megalith::add_data_command(app);
  megalith::add_train_command(app);
  megalith::add_eval_command(app);
  megalith::add_generate_command(app);
  megalith::add_embed_command(app);
  megalith::add_convert_command(app);
  megalith::add_inspect_command(app);
  megalith::add_report_command(app);
  megalith::add_config_command(app);
  megalith::add_bench_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    megalith::log_line("megalith: ", explain(app, error));
    return kWrongInput;
  }
  // Results that were lost, on a full disk for example, are not a success.
  megalith::check(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
                  "standard output: cannot be written completely");
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  megalith::set_large_blocks(megalith::LargeBlocks::kept);
  try {
    return run(argc, argv);
  } catch (const megalith::ExitStatus& exit) {
    return exit.status;
  } catch (const megalith::InputError& error) {
    megalith::log_line("megalith: ", error.what());
    return kWrongInput;
  } catch (const std::bad_alloc&) {
    megalith::log_line("megalith: ", "out of memory");
    return kFailed;
  } catch (const std::exception& error) {
    megalith::log_line("megalith: ", error.what());
    return kFailed;
  }
}
