// megalith embed
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/cli/whole_number.h"
#include "megalith/infer/embedder.h"

namespace megalith {

namespace {

struct Options {
  ModelOptions model;
  std::string input = "-", pooling;
  int64_t max_tokens = 0;
  bool no_normalize = false;
};

// Texts that go to the model together; bounds the memory of long inputs.
constexpr size_t kBatch = 256;

Pooling parse_pooling(const std::string& text) {
  for (size_t i = 0; i < kPoolingNames.size(); ++i) {
    if (text == kPoolingNames[i]) return static_cast<Pooling>(i);
  }
  fail_input("--pooling {}: choose mean, first, last or pooler", text);
}

void run(const Options& options) {
  std::string text;
  if (options.input == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    text = read_file(options.input);
  }
  std::vector<std::string> texts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  check_input(!texts.empty(), "{}: there is no text",
              options.input == "-" ? "standard input" : options.input);

  OpenModel open(options.model);
  EmbedOptions embed = embed_options_of(open.description.directory);
  if (!options.pooling.empty()) embed.pooling = parse_pooling(options.pooling);
  if (options.max_tokens > 0) embed.max_tokens = options.max_tokens;
  if (options.no_normalize) embed.normalize = false;
  Embedder embedder(open.model, open.tokenizer, open.exec, embed);
  Progress progress("embedding", ProgressUnit::count, texts.size());
  for (size_t first = 0; first < texts.size(); first += kBatch) {
    const std::vector<std::string> batch(
        texts.begin() + static_cast<std::ptrdiff_t>(first),
        texts.begin() + static_cast<std::ptrdiff_t>(std::min(texts.size(), first + kBatch)));
    const std::vector<float> vectors = embedder.embed(batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto begin = vectors.begin() + static_cast<std::ptrdiff_t>(i) * embedder.size();
      const nlohmann::ordered_json line = {{"text", batch[i]},
                                           {"embedding", std::vector<float>(begin, begin + embedder.size())}};
      const std::string out = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      check(std::fwrite(out.data(), 1, out.size(), stdout) == out.size(), "cannot write to standard output");
    }
    progress.update(first + batch.size());
  }
  check(std::fflush(stdout) == 0, "cannot write to standard output");
  if (embedder.cut() > 0) {
    log_warning("{} of {} texts were longer than the model's context and were cut", embedder.cut(),
                texts.size());
  }
}

}  // namespace

void add_embed_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("embed", "Turn texts into vectors");
  add_model_options(*command, options->model);
  command->add_option("--input", options->input, "One text a line; default - is standard input")
      ->option_text("FILE");
  command
      ->add_option("--pooling", options->pooling,
                   "mean, first, last or pooler; default what the\nmodel's files say, else mean")
      ->option_text("KIND");
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "Cut texts to this length; default what the\nmodel's files say, else its context")
      ->option_text("N")
      ->check(whole_number(1, kNoLimit));
  command->add_flag("--no-normalize", options->no_normalize, "Keep the vectors' lengths");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
