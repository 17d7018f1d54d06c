// megalith convert
#include <CLI/CLI.hpp>

#include "megalith/base/log.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/formats/consolidate_checkpoint.h"
#include "megalith/train/training_state.h"

namespace megalith {

namespace {

struct Options {
  std::string from, to, format = "huggingface", dtype = "f32";
  bool consolidate = false;
};

void run(const Options& options) {
  const DType dtype = parse_dtype(options.dtype);
  check_input(options.format == "huggingface" || options.format == "megalith",
              "--format {}: choose huggingface or megalith", options.format);
  check_input(!std::filesystem::exists(options.to) ||
                  (std::filesystem::is_directory(options.to) && std::filesystem::is_empty(options.to)),
              "--to {}: there is something already; choose a new directory", options.to);
  const ModelDescription description = describe_model(options.from);
  if (options.consolidate) {
    check_input(description.kind == ModelFileKind::checkpoint,
                "--consolidate joins the files of a Megalith checkpoint; {} is a Hugging Face directory",
                options.from);
    consolidate_checkpoint(CheckpointReader(description.directory), options.to);
    log_info("wrote {}", options.to);
    return;
  }
  Arena workspace("workspace");
  const ExecContext exec{workspace, default_threads()};
  const LoadedModel model(description, DType::f32, exec);
  if (options.format == "huggingface") {
    save_hugging_face(model, description.tokenizer_json, dtype, options.to);
  } else {
    check_input(dtype == DType::f32, "--dtype {}: Megalith checkpoints hold F32 weights", options.dtype);
    save_model_checkpoint(model, description.tokenizer_json, options.to, TrainingState().to_json());
  }
  if (description.tokenizer_json.empty())
    log_warning("{} has no tokenizer.json; none is written", options.from);
  log_info("wrote {}", options.to);
}

}  // namespace

void add_convert_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("convert", "Write a model in another form");
  command->add_option("--from", options->from, "Run, checkpoint or Hugging Face directory")
      ->required()
      ->option_text("DIR");
  command->add_option("--to", options->to, "Directory to write")->required()->option_text("DIR");
  command->add_option("--format", options->format, "huggingface (default) or megalith")
      ->option_text("FORMAT");
  command->add_option("--dtype", options->dtype, "Type of the weights: f32 (default), bf16, f16")
      ->option_text("TYPE");
  command
      ->add_flag("--consolidate", options->consolidate,
                 "Instead: a checkpoint of many ranks with all its\nstates as the files of one process")
      ->excludes("--format")
      ->excludes("--dtype");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
