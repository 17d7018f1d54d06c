// megalith generate
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megalith/base/log.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/cli/whole_number.h"
#include "megalith/infer/generator.h"
#include "megalith/infer/stop_matcher.h"

namespace megalith {

namespace {

struct Options {
  ModelOptions model;
  std::string prompt, input;
  bool has_prompt = false;
  GenerateOptions generate;
  bool json = false;
};

std::vector<std::string> read_prompts(const Options& options) {
  if (options.has_prompt) return {options.prompt};
  std::string text;
  if (options.input.empty() || options.input == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    text = read_file(options.input);
  }
  // One prompt a line, as it stands: nothing is unescaped.
  std::vector<std::string> prompts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) prompts.push_back(line);
  check_input(!prompts.empty(), "there is no prompt: give --prompt, --input or standard input");
  return prompts;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run(Options& options) {
  // Before the prompt is shown or the model read.
  options.generate.sampling.validate();
  const StopMatcher checked(options.generate.stop);
  const std::vector<std::string> prompts = read_prompts(options);
  OpenModel open(options.model);
  open.model.pack_weights(open.exec);
  options.generate.end_of_text = open.description.end_of_text;
  Generator generator(open.model, open.tokenizer, open.exec);
  for (const std::string& prompt : prompts) {
    if (options.json) {
      const Generation result = generator.generate(prompt, options.generate);
      const nlohmann::ordered_json line = {{"prompt", prompt},
                                           {"token_ids", result.token_ids},
                                           {"text", result.text},
                                           {"finish_reason", result.finish_reason}};
      put(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      continue;
    }
    put(prompt);
    const Generation result =
        generator.generate(prompt, options.generate, [](std::string_view text) { put(text); });
    put("\n");
    const double seconds = std::max(result.decode_seconds, 1e-9);
    log_info("{} tokens, {:.1f} a second; prompt of {} in {:.3f} s; ended by {}", result.token_ids.size(),
             static_cast<double>(result.token_ids.size()) / seconds, result.prompt_ids.size(),
             result.prefill_seconds, result.finish_reason);
  }
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a model");
  add_model_options(*command, options->model);
  CLI::Option* prompt =
      command->add_option("--prompt", options->prompt, "Text to continue, taken as it stands");
  command->add_option("--input", options->input, "One prompt a line; default - is standard input")
      ->option_text("FILE")
      ->excludes(prompt);
  command->add_option("--max-tokens", options->generate.max_tokens, "New tokens at most; default 128")
      ->option_text("N")
      ->check(whole_number(0, kNoLimit));
  SamplingOptions& sampling = options->generate.sampling;
  command->add_option("--temperature", sampling.temperature, "0 is greedy; default 1")->option_text("T");
  command->add_option("--top-k", sampling.top_k, "Keep the K most likely tokens; 0 is off")
      ->option_text("K")
      ->check(whole_number(0, kNoLimit));
  command->add_option("--top-p", sampling.top_p, "Keep the most likely tokens up to this sum")
      ->option_text("P");
  command->add_option("--min-p", sampling.min_p, "Keep tokens of this share of the best's")->option_text("P");
  command
      ->add_option("--repetition-penalty", sampling.repetition_penalty, "Above 1 makes repeats less likely")
      ->option_text("R");
  command->add_option("--seed", sampling.seed, "Of the random choices; default 0")
      ->option_text("S")
      ->check(whole_number(0, kNoLimit));
  command->add_option("--stop", options->generate.stop, "End before this text; may be given several times")
      ->option_text("TEXT")
      ->allow_extra_args(false);  // brackets are part of a text, not of a list
  command->add_flag("--ignore-end", options->generate.ignore_end, "Go on after the end-of-document token");
  command->add_flag("--parse-special", options->generate.parse_special,
                    "Special tokens in the prompt count as such");
  command->add_flag("--json", options->json, "One JSON object a prompt");
  command->callback([options, prompt] {
    options->has_prompt = prompt->count() > 0;
    run(*options);
  });
}

}  // namespace megalith
