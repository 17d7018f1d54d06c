// megalith convert
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "megalith/base/log.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/formats/consolidate_checkpoint.h"
#include "megalith/model/gguf_model.h"
#include "megalith/model/tokenizer_files.h"
#include "megalith/train/training_state.h"

namespace megalith {

namespace {

struct Options {
  std::string from, to, format = "huggingface", dtype = "f32", tokenizer;
  bool consolidate = false;
};

GgufType parse_gguf_type(const std::string& text) {
  if (text == "q8_0") return GgufType::q8_0;
  if (text == "q4_0") return GgufType::q4_0;
  if (text == "bf16") return GgufType::bf16;
  if (text == "f16" || text == "fp16") return GgufType::f16;
  if (text == "f32" || text == "fp32") return GgufType::f32;
  fail_input("--dtype {}: choose f32, bf16, f16, q8_0 or q4_0", text);
}

// Before the work starts.
void list_what_gguf_leaves_out(const ModelDescription& description) {
  const ModelConfig& config = description.config;
  if (!config.causal && (config.head != HeadKind::none || config.pooler)) {
    log_warning("GGUF keeps what makes embeddings: the {} is left out",
                config.head == HeadKind::none ? "pooler" : "masked-language-model head");
  }
  const auto settings = nlohmann::json::parse(description.generation_config, nullptr, false);
  if (!settings.is_object()) return;
  std::string names;
  for (const auto& [key, value] : settings.items()) {
    // Token ids are kept; the others say nothing about generation.
    if (key.ends_with("_token_id") || key == "_from_model_config" || key == "transformers_version") continue;
    names += (names.empty() ? "" : ", ") + key;
  }
  if (!names.empty()) log_warning("GGUF has no place for these settings of generation: {}", names);
}

void run(const Options& options) {
  const bool gguf = options.format == "gguf";
  check_input(options.format == "huggingface" || options.format == "megalith" || gguf,
              "--format {}: choose huggingface, gguf or megalith", options.format);
  check_input(!std::filesystem::exists(options.to) || (!gguf && std::filesystem::is_directory(options.to) &&
                                                       std::filesystem::is_empty(options.to)),
              "--to {}: there is something already; choose a new name", options.to);
  const GgufType gguf_type = gguf ? parse_gguf_type(options.dtype) : GgufType::f32;
  const DType dtype = gguf ? DType::f32 : parse_dtype(options.dtype);
  const ModelDescription description = describe_model(options.from);
  if (options.consolidate) {
    check_input(description.kind == ModelFileKind::checkpoint,
                "--consolidate joins the files of a Megalith checkpoint; {} is none", options.from);
    consolidate_checkpoint(CheckpointReader(description.directory), options.to);
    log_info("wrote {}", options.to);
    return;
  }
  check_input(!options.tokenizer.empty() || description.tokenizer_error.empty(), "{}",
              description.tokenizer_error);
  const std::optional<Tokenizer> tokenizer =
      options.tokenizer.empty() ? description.tokenizer : open_tokenizer(options.tokenizer);
  // GGUF keeps what a tokenizer.json cannot say, and writing a large one takes seconds.
  const bool as_it_is = gguf && tokenizer.has_value();
  const std::string tokenizer_json = as_it_is    ? std::string()
                                     : tokenizer ? tokenizer->to_json()
                                                 : description.tokenizer_json;
  const ModelExtras extras{tokenizer_json, description.chat_template, description.end_of_text,
                           description.generation_config, as_it_is ? tokenizer : std::nullopt};
  if (gguf) list_what_gguf_leaves_out(description);
  Arena workspace("workspace");
  const ExecContext exec{workspace, default_threads()};
  const bool streams = options.format != "megalith";
  const LoadedModel model(description, DType::f32, exec,
                          streams ? WeightForm::as_stored : WeightForm::copied);
  if (options.format == "huggingface") {
    save_hugging_face(model, extras, dtype, options.to);
  } else if (gguf) {
    save_gguf(model.config(), model.all_parameters(), gguf_type, extras, exec, options.to);
  } else {
    check_input(dtype == DType::f32, "--dtype {}: Megalith checkpoints hold F32 weights", options.dtype);
    save_model_checkpoint(model, extras, options.to, TrainingState().to_json());
  }
  if (tokenizer_json.empty() && !as_it_is)
    log_warning("{} has no tokenizer.json; none is written", options.from);
  log_info("wrote {}", options.to);
}

}  // namespace

void add_convert_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("convert", "Write a model in another form");
  command->add_option("--from", options->from, "Run, checkpoint, Hugging Face directory or .gguf")
      ->required()
      ->option_text("PATH");
  command->add_option("--to", options->to, "Directory, or .gguf file, to write")
      ->required()
      ->option_text("PATH");
  command->add_option("--tokenizer", options->tokenizer, "tokenizer.json, instead of the model's own")
      ->option_text("FILE");
  command->add_option("--format", options->format, "huggingface (default), gguf or megalith")
      ->option_text("FORMAT");
  command
      ->add_option("--dtype", options->dtype,
                   "Type of the weights: f32 (default), bf16, f16;\ngguf also q8_0, q4_0")
      ->option_text("TYPE");
  command
      ->add_flag("--consolidate", options->consolidate,
                 "Instead: a checkpoint of many ranks with all its\nstates as the files of one process")
      ->excludes("--format")
      ->excludes("--dtype");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
