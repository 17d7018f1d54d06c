// megalith data tokenize|merge|inspect
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/whole_number.h"
#include "megalith/data/dataset_tokenizer.h"
#include "megalith/data/tokenize_dataset.h"
#include "megalith/formats/indexed_dataset.h"
#include "megalith/model/tokenizer_files.h"

namespace megalith {

namespace {

void tokenize(const std::string& tokenizer_path, TokenizeOptions options) {
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = open_tokenizer(tokenizer_path);
  options.tokenizer_json = tokenizer.to_json();
  TokenizeResult result;
  {
    Progress progress("tokenising", ProgressUnit::bytes);
    options.progress = [&](uint64_t bytes) { progress.update(bytes); };
    result = tokenize_dataset(tokenizer, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info("{}", result.summary);
  for (const auto& output : result.outputs) {
    log_info("{}: {} documents, {} tokens{}", output.prefix, output.documents, output.tokens,
             output.missing == 0 ? "" : fmt::format("; {} records lack this key", output.missing));
  }
  log_info("{} in {:.1f} s, {}/s", format_bytes(result.bytes), seconds,
           format_bytes(static_cast<uint64_t>(static_cast<double>(result.bytes) / seconds)));
}

void merge(const std::vector<std::string>& inputs, const std::string& output) {
  for (const std::string& input : inputs) {
    check_input(input != output, "--output {}: is one of the inputs", output);
  }
  const IndexedDataset first(inputs.front());
  IndexedDatasetWriter writer(output, first.type());
  for (const std::string& input : inputs) writer.add_index(input);
  merge_dataset_tokenizers(inputs, output);
  writer.finish();
  log_info("{}: {} documents, {} tokens", output, writer.documents(), writer.tokens());
}

// The prefix of a dataset, also when the name of one of its files is given.
std::string prefix_of(std::string path) {
  for (const std::string_view ending : {".idx", ".bin"}) {
    if (path.size() > ending.size() && path.ends_with(ending)) path.resize(path.size() - ending.size());
  }
  return path;
}

void inspect(const std::string& path, bool json) {
  const IndexedDataset dataset(prefix_of(path));
  uint64_t shortest = dataset.documents() == 0 ? 0 : ~uint64_t{0};
  uint64_t longest = 0, empty = 0;
  for (uint64_t d = 0; d < dataset.documents(); ++d) {
    const uint64_t length = dataset.document_length(d);
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
    empty += length == 0 ? 1 : 0;
  }
  const uint64_t bytes = dataset.tokens() * token_bytes(dataset.type());
  if (json) {
    const nlohmann::ordered_json object = {
        {"prefix", dataset.prefix().string()}, {"dtype", name(dataset.type())},
        {"documents", dataset.documents()},    {"sequences", dataset.sequences()},
        {"tokens", dataset.tokens()},          {"shortest_document", shortest},
        {"longest_document", longest},         {"empty_documents", empty},
        {"modes", dataset.has_modes()}};
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  std::printf(
      "%s",
      fmt::format("{}\n  type       {}\n  tokens     {} ({})\n  documents  {} ({} to {} tokens, {} empty)\n"
                  "  sequences  {}{}\n",
                  dataset.prefix().string(), name(dataset.type()), dataset.tokens(), format_bytes(bytes),
                  dataset.documents(), shortest, longest, empty, dataset.sequences(),
                  dataset.has_modes() ? ", with modes" : "")
          .c_str());
}

}  // namespace

void add_data_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("data", "Make and look into token datasets");
  command->require_subcommand(1);

  struct TokenizeArguments {
    std::string tokenizer;
    TokenizeOptions options;
  };
  auto tokenizing = std::make_shared<TokenizeArguments>();
  tokenizing->options.workers = default_threads();
  CLI::App* tokenize_command =
      command->add_subcommand("tokenize", "Text or JSON lines to PREFIX_<key>_document.*");
  TokenizeOptions& options = tokenizing->options;
  tokenize_command
      ->add_option("--input", options.inputs,
                   "Text files, JSON lines, directories; also .gz,\n.zst; - is standard input")
      ->required();
  tokenize_command->add_option("--tokenizer", tokenizing->tokenizer, "A tokenizer.json")->required();
  tokenize_command->add_option("--output", options.output_prefix, "PREFIX of the files to write")->required();
  tokenize_command
      ->add_option("--json-keys", options.json_keys,
                   "Keys of JSON lines, one dataset each; plain text\ngoes to the first")
      ->capture_default_str();
  tokenize_command->add_flag("--append-eod", options.append_end_of_document,
                             "End documents with <|endoftext|> (or </s>, ...)");
  tokenize_command->add_option("--workers", options.workers, "Threads; the result does not depend on them")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  tokenize_command->add_option("--reject-file", options.reject_file,
                               "Write refused records here, as JSON lines");
  tokenize_command->add_flag("--strict", options.strict, "A bad record ends the run with exit status 2");
  tokenize_command->add_option(
      "--document-separator", options.document_separator,
      "A line like this ends a document of a plain file;\nelse a file is one document");
  tokenize_command->add_flag("--stdin-json", options.stdin_is_json,
                             "Standard input holds JSON lines, not plain text");
  tokenize_command->callback([tokenizing] { tokenize(tokenizing->tokenizer, tokenizing->options); });

  struct MergeArguments {
    std::vector<std::string> inputs;
    std::string output;
  };
  auto merging = std::make_shared<MergeArguments>();
  CLI::App* merge_command = command->add_subcommand("merge", "Join datasets of one type, in the order given");
  merge_command->add_option("--input", merging->inputs, "PREFIX of each dataset")->required();
  merge_command->add_option("--output", merging->output, "PREFIX of the files to write")->required();
  merge_command->callback([merging] { merge(merging->inputs, merging->output); });

  struct InspectArguments {
    std::string prefix;
    bool json = false;
  };
  auto inspecting = std::make_shared<InspectArguments>();
  CLI::App* inspect_command = command->add_subcommand("inspect", "Tell what a dataset holds");
  inspect_command->add_option("prefix", inspecting->prefix, "PREFIX of the dataset")->required();
  inspect_command->add_flag("--json", inspecting->json, "Write one JSON object");
  inspect_command->callback([inspecting] { inspect(inspecting->prefix, inspecting->json); });
}

}  // namespace megalith
