// megalith eval
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/cli/whole_number.h"
#include "megalith/eval/perplexity.h"
#include "megalith/formats/indexed_dataset.h"
#include "megalith/ops/elementwise.h"
#include "megalith/train/recipe.h"

namespace megalith {

namespace {

struct Options {
  ModelOptions model;
  std::string input;
  PerplexityOptions perplexity;
  bool window_given = false, stride_given = false;
  bool baselines = false, json = false;
};

struct Row {
  std::string name;
  PerplexityResult result;
};

// Token counts of the datasets that the checkpoint's recipe trained on.
std::vector<int64_t> training_counts(const OpenModel& open) {
  const CheckpointReader reader(open.description.directory);
  check_input(reader.has_file("recipe.toml"),
              "--baselines: {} has no recipe, so its training data is not known",
              open.description.directory.string());
  const Recipe recipe =
      Recipe::from_source(ConfigSource::from_text(reader.read_file("recipe.toml"), "recipe.toml"), "/");
  std::vector<int64_t> counts(static_cast<size_t>(open.model.config().vocab_size), 0);
  std::vector<int32_t> tokens;
  for (const WeightedPath& path : recipe.data.train) {
    const IndexedDataset dataset(path.path);
    for (uint64_t sequence = 0; sequence < dataset.sequences(); ++sequence) {
      tokens.resize(dataset.sequence_length(sequence));
      dataset.read_sequence(sequence, 0, tokens);
      for (const int32_t token : tokens) {
        if (token >= 0 && static_cast<size_t>(token) < counts.size()) counts[static_cast<size_t>(token)] += 1;
      }
    }
  }
  return counts;
}

// With a progress line, for a text may take hours.
PerplexityResult measure(const OpenModel& open, const std::string& text, const PerplexityOptions& options) {
  std::optional<Progress> progress;
  return perplexity(open.model, open.tokenizer, text, options, open.exec, [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("measuring", ProgressUnit::count, static_cast<uint64_t>(total));
    progress->update(static_cast<uint64_t>(done));
  });
}

void run_perplexity(Options options) {
  std::string text;
  if (options.input == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    text = read_file(options.input);
  }
  check_input(!text.empty(), "{}: there is no text", options.input == "-" ? "standard input" : options.input);
  check_input(!options.baselines || !options.model.as_stored(),
              "--baselines gives the model fresh weights, which --dtype stored leaves in their files");
  OpenModel open(options.model);
  if (!options.window_given) options.perplexity.window = open.model.config().max_positions;
  if (!options.stride_given) options.perplexity.stride = std::max<int64_t>(1, options.perplexity.window / 2);
  std::vector<Row> rows;
  rows.push_back({"this model", measure(open, text, options.perplexity)});
  if (options.baselines) {
    check_input(open.description.kind == ModelFileKind::checkpoint,
                "--baselines needs a run or checkpoint of Megalith");
    rows.push_back({"unigram model", unigram_perplexity(training_counts(open), open.tokenizer, text)});
    // The same model before training: fresh weights from the seed 0.
    const TensorView values = open.model.parameters().values();
    Tensor weights(DType::f32, values.shape());
    initialize_parameters(open.exec, open.model.parameters().slots(), 0, {0, weights.view().elements()},
                          weights);
    convert(open.exec, weights, values);
    rows.push_back({"untrained model", measure(open, text, options.perplexity)});
  }
  if (options.json) {
    nlohmann::ordered_json results = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      results.push_back({{"model", row.name},
                         {"negative_log_likelihood", row.result.negative_log_likelihood},
                         {"token_perplexity", row.result.token_perplexity()},
                         {"word_perplexity", row.result.word_perplexity()},
                         {"bits_per_byte", row.result.bits_per_byte()}});
    }
    const PerplexityResult& first = rows.front().result;
    const nlohmann::ordered_json json = {
        {"tokens", first.tokens}, {"words", first.words},
        {"bytes", first.bytes},   {"window", first.window},
        {"stride", first.stride}, {"begins_with_special", first.begins_with_special},
        {"results", results}};
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  const PerplexityResult& first = rows.front().result;
  fmt::print("{} tokens, {} words, {} bytes; window {}, stride {}; {}\n", first.tokens, first.words,
             first.bytes, first.window, first.stride,
             first.begins_with_special ? "each begins with the beginning-of-text token"
                                       : "the first token is given, not scored");
  fmt::print("{:<18}{:>18}{:>18}{:>16}\n", "", "token perplexity", "word perplexity", "bits per byte");
  for (const Row& row : rows) {
    fmt::print("{:<18}{:>18.3f}{:>18.5g}{:>16.4f}\n", row.name, row.result.token_perplexity(),
               row.result.word_perplexity(), row.result.bits_per_byte());
  }
  fmt::print(
      "token perplexity = exp(nll / tokens), word perplexity = exp(nll / words of the\n"
      "original text), bits per byte = nll / ln 2 / bytes of the scored tokens.\n");
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Measure a model");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* perplexity = command->add_subcommand("perplexity", "Perplexity and bits per byte of a text");
  add_model_options(*perplexity, options->model);
  perplexity->add_option("--input", options->input, "Text; - is standard input")
      ->required()
      ->option_text("FILE");
  CLI::Option* window = perplexity
                            ->add_option("--window", options->perplexity.window,
                                         "Tokens seen at once; default the model's positions")
                            ->option_text("N")
                            ->check(whole_number(1, kNoLimit));
  CLI::Option* stride = perplexity
                            ->add_option("--stride", options->perplexity.stride,
                                         "Tokens it moves and scores; default half of it")
                            ->option_text("N")
                            ->check(whole_number(1, kNoLimit));
  perplexity->add_option("--batch", options->perplexity.batch, "Windows computed together; default 4")
      ->option_text("N")
      ->check(whole_number(1, 65536));
  perplexity->add_flag("--baselines", options->baselines, "Also an untrained model and a unigram model");
  perplexity->add_flag("--json", options->json, "Results as JSON");
  perplexity->callback([options, window, stride] {
    options->window_given = window->count() > 0;
    options->stride_given = stride->count() > 0;
    run_perplexity(*options);
  });
}

}  // namespace megalith
