#include "megalith/cli/model_options.h"

#include <CLI/CLI.hpp>

#include "megalith/base/error.h"
#include "megalith/cli/whole_number.h"
#include "megalith/model/tokenizer_files.h"

namespace megalith {

namespace {

Tokenizer tokenizer_of(const ModelOptions& options, const ModelDescription& description) {
  return options.tokenizer.empty() ? description.open_tokenizer() : open_tokenizer(options.tokenizer);
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model, "Run, checkpoint, Hugging Face directory or .gguf")
      ->required()
      ->option_text("PATH");
  command.add_option("--tokenizer", options.tokenizer, "Tokenizer file, instead of the model's own")
      ->option_text("FILE");
  command
      .add_option(
          "--dtype", options.dtype,
          "Type to compute in: f32 (default), bf16, f16;\nor stored: f32, weights as they lie in the\n"
          "file, which costs speed and saves memory")
      ->option_text("TYPE");
  command.add_option("--threads", options.threads, "CPU threads; default all")
      ->option_text("N")
      ->check(whole_number(0, 4096));
}

DType parse_dtype(const std::string& text, const char* others) {
  if (text == "f32" || text == "fp32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  if (text == "f16" || text == "fp16") return DType::f16;
  fail_input("--dtype {}: choose {}f32, bf16 or f16", text, others);
}

namespace {

DType compute_type(const ModelOptions& options) {
  if (options.as_stored()) return DType::f32;
  return parse_dtype(options.dtype, "stored, ");
}

}  // namespace

OpenModel::OpenModel(const ModelOptions& options)
    : exec{workspace, options.threads > 0 ? options.threads : default_threads()},
      description(describe_model(options.model)),
      tokenizer(tokenizer_of(options, description)),
      model(description, compute_type(options), exec,
            options.as_stored() ? WeightForm::as_stored : WeightForm::copied) {}

}  // namespace megalith
