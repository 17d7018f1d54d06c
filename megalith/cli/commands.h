// The commands of `megalith`, one file each. Every function adds a subcommand whose callback runs it; errors
// are exceptions, which main() turns into exit statuses.
#pragma once

namespace CLI {
class App;
}

namespace megalith {

/// Thrown to end the program with this status when everything has been said.
struct ExitStatus {
  int status;
};

void add_tokenizer_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_embed_command(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_bench_command(CLI::App& app);

}  // namespace megalith
