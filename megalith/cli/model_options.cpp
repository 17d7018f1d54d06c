#include "megalith/cli/model_options.h"

#include <CLI/CLI.hpp>

#include "megalith/base/error.h"
#include "megalith/cli/whole_number.h"

namespace megalith {

namespace {

Tokenizer open_tokenizer(const ModelOptions& options, const ModelDescription& description) {
  if (!options.tokenizer.empty()) return Tokenizer::load(options.tokenizer);
  check_input(description.tokenizer_error.empty(), "{}", description.tokenizer_error);
  check_input(!description.tokenizer_json.empty(),
              "{} holds no tokenizer; give a tokenizer.json with --tokenizer",
              description.directory.string());
  return Tokenizer::from_json(description.tokenizer_json,
                              (description.directory / "tokenizer.json").string());
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model, "Run, checkpoint, Hugging Face directory or .gguf")
      ->required()
      ->option_text("PATH");
  command.add_option("--tokenizer", options.tokenizer, "tokenizer.json, instead of the model's own")
      ->option_text("FILE");
  command.add_option("--dtype", options.dtype, "Type to compute in: f32 (default), bf16, f16")
      ->option_text("TYPE");
  command.add_option("--threads", options.threads, "CPU threads; default all")
      ->option_text("N")
      ->check(whole_number(0, 4096));
}

DType parse_dtype(const std::string& text) {
  if (text == "f32" || text == "fp32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  if (text == "f16" || text == "fp16") return DType::f16;
  fail_input("--dtype {}: choose f32, bf16 or f16", text);
}

OpenModel::OpenModel(const ModelOptions& options)
    : exec{workspace, options.threads > 0 ? options.threads : default_threads()},
      description(describe_model(options.model)),
      tokenizer(open_tokenizer(options, description)),
      model(description, parse_dtype(options.dtype), exec) {}

}  // namespace megalith
