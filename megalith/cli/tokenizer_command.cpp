// megalith tokenizer train|encode|decode|convert
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/json_depth.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/measurement.h"
#include "megalith/cli/whole_number.h"
#include "megalith/data/record_parser.h"
#include "megalith/data/text_source.h"
#include "megalith/model/tokenizer_files.h"
#include "megalith/text/bpe_trainer.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

namespace {

// Plain text is counted in parts of this size, so that a corpus in one file need not fit in memory.
constexpr size_t kPartBytes = size_t{8} << 20;
constexpr size_t kBatchBytes = size_t{32} << 20;

struct TrainArguments {
  std::vector<std::string> inputs;
  int64_t vocabulary_size = 0;
  std::string output;
  std::string pattern = "gpt2";
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::vector<std::string> json_keys = {"text"};
  int64_t minimum_count = 1;
  int64_t maximum_piece_bytes = 256;
  int workers = default_threads();
  std::string reject_file;
  bool strict = false;
};

void train(const TrainArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  BpeTrainer trainer({.vocabulary_size = arguments.vocabulary_size,
                      .special_tokens = arguments.special_tokens,
                      .pattern = arguments.pattern,
                      .minimum_count = arguments.minimum_count,
                      .maximum_piece_bytes = static_cast<size_t>(arguments.maximum_piece_bytes),
                      .threads = arguments.workers});
  RecordReader reader(find_input_files(arguments.inputs),
                      {.document_separator = "", .part_bytes = kPartBytes});
  RecordParser parser(arguments.json_keys);
  RejectLog log(arguments.reject_file, arguments.strict);
  {
    Progress progress("counting words", ProgressUnit::bytes);
    std::vector<std::string> texts;
    size_t batch_bytes = 0;
    const auto count = [&] {
      const std::vector<std::string_view> views(texts.begin(), texts.end());
      trainer.add_documents(views);
      texts.clear();
      batch_bytes = 0;
      progress.update(reader.bytes_read());
    };
    ParsedRecord parsed;
    for (RawRecord record; reader.next(record);) {
      parser.parse(record, parsed);
      if (parsed.reject) {
        log.reject(reader.path(record.file), record, *parsed.reject);
        continue;
      }
      log.keep();
      for (auto& text : parsed.texts) {
        if (!text) continue;
        batch_bytes += text->size();
        texts.push_back(std::move(*text));
      }
      if (batch_bytes >= kBatchBytes) count();
    }
    count();
  }
  log.finish();
  check_input(log.kept() > 0, "no text to train on: {}", log.summary());
  const double counted = seconds_since(start);
  Progress progress("merging", ProgressUnit::count, static_cast<uint64_t>(arguments.vocabulary_size));
  const Tokenizer tokenizer =
      trainer.train([&](int64_t done, int64_t) { progress.update(static_cast<uint64_t>(done)); });
  tokenizer.save(arguments.output);
  log_info("{}", log.summary());
  log_info("{}: {} tokens from {} of text in {:.1f} s ({:.1f} s of them counting words), peak memory {}",
           arguments.output, tokenizer.vocab_size(), format_bytes(reader.bytes_read()), seconds_since(start),
           counted, format_bytes(peak_resident_bytes()));
  if (tokenizer.vocab_size() < arguments.vocabulary_size) {
    log_warning("the text has too few pairs for {} tokens", arguments.vocabulary_size);
  }
}

constexpr const char* kTokenizerHelp =
    "tokenizer.json, SentencePiece .model,\n.tiktoken, .gguf, or the directory of a model";
constexpr const char* kPatternHelp =
    "How texts of a .tiktoken file of unknown\nsize are split: gpt2, cl100k, o200k,\nllama3, qwen2";

struct CodeArguments {
  std::string tokenizer;
  std::string input = "-";
  bool json = false;
  bool parse_special = false;
  bool add_special = false;
  bool skip_special = false;
  bool truncate = false;
  bool pad = false;
  std::string pattern;
  bool stats = false;
  int workers = 1;
};

std::string read_input(const std::string& path) {
  if (path != "-") return read_file(path);
  const auto stream = open_byte_stream(path);
  std::string text;
  std::vector<char> buffer(1 << 20);
  for (size_t got; (got = stream->read(buffer.data(), buffer.size())) > 0;) text.append(buffer.data(), got);
  return text;
}

void write_output(std::string_view text) {
  check(std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0,
        "standard output: cannot be written");
}

void encode(const CodeArguments& arguments) {
  const Tokenizer tokenizer = open_tokenizer(arguments.tokenizer, arguments.pattern);
  const std::string text = read_input(arguments.input);
  const EncodeOptions options{.parse_special = arguments.parse_special,
                              .add_special = arguments.add_special,
                              .truncate = arguments.truncate,
                              .pad = arguments.pad};
  const auto start = std::chrono::steady_clock::now();
  const auto ids = arguments.workers > 1 ? tokenizer.encode_parallel(text, arguments.workers, options)
                                         : tokenizer.encode(text, options);
  const double seconds = seconds_since(start);
  if (arguments.stats) {
    log_info("{} bytes, {} tokens, {:.4f} s, {:.1f} MB/s", text.size(), ids.size(), seconds,
             static_cast<double>(text.size()) / seconds / 1e6);
  }
  std::string out;
  if (arguments.json) {
    nlohmann::ordered_json json = {{"token_ids", ids}};
    json["tokens"] = nlohmann::json::array();
    json["offsets"] = nlohmann::json::array();
    json["character_offsets"] = nlohmann::json::array();
    for (const TokenSpan& span : tokenizer.encode_with_offsets(text, options)) {
      json["tokens"].push_back(std::string(tokenizer.token_bytes(span.id)));
      json["offsets"].push_back({span.byte_begin, span.byte_end});
      json["character_offsets"].push_back({span.character_begin, span.character_end});
    }
    out = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  } else {
    for (const int32_t id : ids) out.append(out.empty() ? "" : " ").append(std::to_string(id));
    out.push_back('\n');
  }
  write_output(out);
}

// Ids as numbers with white space or commas between them, or as JSON: a list, or an object with "token_ids".
std::vector<int32_t> read_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
    check_json_depth(text, "input");
    try {
      const auto json = nlohmann::json::parse(text);
      return (json.is_object() ? json.at("token_ids") : json).get<std::vector<int32_t>>();
    } catch (const nlohmann::json::exception& error) {
      fail_input("input: expected a JSON list of token ids: {}", error.what());
    }
  }
  for (size_t at = 0; at < text.size();) {
    if (std::string_view(" \t\r\n,").find(text[at]) != std::string_view::npos) {
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \t\r\n,", at), text.size());
    int32_t id = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, id);
    check_input(error == std::errc() && rest == text.data() + end, "input, byte {}: '{}' is not a token id",
                at, text.substr(at, std::min<size_t>(end - at, 40)));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void decode(const CodeArguments& arguments) {
  const Tokenizer tokenizer = open_tokenizer(arguments.tokenizer, arguments.pattern);
  const std::string text = tokenizer.decode(read_ids(read_input(arguments.input)), arguments.skip_special);
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"text", text}};
    write_output(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    write_output(text);
  }
}

struct ConvertArguments {
  std::string tokenizer;
  std::string pattern;
  std::string output;
};

}  // namespace

void add_tokenizer_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenizer", "Train a tokenizer; turn text into ids and back");
  command->require_subcommand(1);

  auto training = std::make_shared<TrainArguments>();
  CLI::App* train_command = command->add_subcommand("train", "Train a byte-level BPE tokenizer");
  train_command
      ->add_option("--input", training->inputs,
                   "Text files, JSON lines, directories; also .gz,\n.zst; - is standard input")
      ->required();
  train_command->add_option("--vocab-size", training->vocabulary_size, "Tokens in all, at least 257")
      ->check(whole_number(1, kNoLimit))
      ->required();
  train_command->add_option("--output", training->output, "The tokenizer.json to write")->required();
  train_command->add_option("--pattern", training->pattern, "How text is cut into words: gpt2, llama3, qwen2")
      ->capture_default_str();
  train_command->add_option("--special-token", training->special_tokens, "Special tokens, ids from 0 on")
      ->allow_extra_args(false)  // else [MASK] would be a list that holds MASK
      ->capture_default_str();
  train_command->add_option("--json-keys", training->json_keys, "Keys of JSON lines that hold text")
      ->capture_default_str();
  train_command->add_option("--min-count", training->minimum_count, "Rarer pairs are not merged")
      ->check(whole_number(1, kNoLimit))
      ->capture_default_str();
  train_command
      ->add_option("--maximum-piece-bytes", training->maximum_piece_bytes,
                   "Longer words are cut; no token gets longer")
      ->check(whole_number(4, 1 << 20))
      ->capture_default_str();
  train_command->add_option("--workers", training->workers, "Threads that count words")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  train_command->add_option("--reject-file", training->reject_file,
                            "Write refused records here, as JSON lines");
  train_command->add_flag("--strict", training->strict, "A bad record ends the run with exit status 2");
  train_command->callback([training] { train(*training); });

  auto encoding = std::make_shared<CodeArguments>();
  CLI::App* encode_command = command->add_subcommand("encode", "Turn text into token ids");
  encode_command->add_option("--tokenizer", encoding->tokenizer, kTokenizerHelp)->required();
  encode_command->add_option("--pattern", encoding->pattern, kPatternHelp);
  encode_command->add_option("--input", encoding->input, "The text; - is standard input")
      ->capture_default_str();
  encode_command->add_flag("--json", encoding->json,
                           "Write token_ids, tokens, offsets in bytes and in\ncharacters as JSON");
  encode_command->add_flag("--parse-special", encoding->parse_special,
                           "Text like <|endoftext|> becomes the special token");
  encode_command->add_flag("--add-special", encoding->add_special,
                           "Add what the tokenizer puts around a text");
  encode_command->add_flag("--truncate", encoding->truncate,
                           "Cut to the length that the tokenizer.json sets");
  encode_command->add_flag("--pad", encoding->pad, "Fill up as the tokenizer.json says");
  encode_command->add_flag("--stats", encoding->stats, "Tell counts and speed on standard error");
  encode_command->add_option("--workers", encoding->workers, "Threads; the ids do not depend on them")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  encode_command->callback([encoding] { encode(*encoding); });

  auto decoding = std::make_shared<CodeArguments>();
  CLI::App* decode_command = command->add_subcommand("decode", "Turn token ids into text");
  decode_command->add_option("--tokenizer", decoding->tokenizer, kTokenizerHelp)->required();
  decode_command->add_option("--pattern", decoding->pattern, kPatternHelp);
  decode_command
      ->add_option("--input", decoding->input,
                   "Ids between spaces, or JSON as encode writes it;\n- is standard input")
      ->capture_default_str();
  decode_command->add_flag("--json", decoding->json, "Write the text as a JSON object");
  decode_command->add_flag("--skip-special", decoding->skip_special, "Leave special tokens out");
  decode_command->callback([decoding] { decode(*decoding); });

  auto converting = std::make_shared<ConvertArguments>();
  CLI::App* convert_command = command->add_subcommand("convert", "Write any tokenizer as a tokenizer.json");
  convert_command->add_option("--tokenizer", converting->tokenizer, kTokenizerHelp)->required();
  convert_command->add_option("--pattern", converting->pattern, kPatternHelp);
  convert_command->add_option("--output", converting->output, "The tokenizer.json to write")->required();
  convert_command->callback(
      [converting] { open_tokenizer(converting->tokenizer, converting->pattern).save(converting->output); });
}

}  // namespace megalith
