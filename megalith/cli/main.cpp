// megalith: the program.

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/cli/commands.h"

namespace {

constexpr int kDone = 0, kFailed = 1, kWrongInput = 2;

// Third parties allocate with malloc; giving large blocks back to the system and faulting them in anew on
// every use is what would cost, so they are kept.
void keep_large_blocks() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 1 << 24);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Megalith curates text, trains, evaluates and runs transformer language models.\n"
      "Results go to standard output, everything else to standard error.",
      "megalith");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  app.get_formatter()->column_width(30);
  app.set_version_flag("--version", "megalith 0.1.0");
  app.footer(
      "Exit status: 0 done (also after a clean stop by SIGINT or SIGTERM), 1 failed\n"
      "while running, 2 wrong input.\n"
      "Environment: MEGALITH_ISA=v3|v4|bf16|amx lowers the instruction-set level of\n"
      "kernels; OMP_NUM_THREADS sets the number of threads.");
  megalith::add_tokenizer_command(app);
  megalith::add_data_command(app);
  megalith::add_train_command(app);
  megalith::add_eval_command(app);
  megalith::add_generate_command(app);
  megalith::add_convert_command(app);
  megalith::add_inspect_command(app);
  megalith::add_report_command(app);
  megalith::add_config_command(app);
  megalith::add_bench_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    std::fprintf(stderr, "megalith: %s\nTry --help with the command.\n", error.what());
    return kWrongInput;
  }
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  keep_large_blocks();
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
