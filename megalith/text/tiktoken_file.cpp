#include "megalith/text/tiktoken_file.h"

#include <charconv>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/text/base64.h"
#include "megalith/text/split_pattern.h"

namespace megalith {

namespace {

struct Known {
  size_t ranks;
  const char* pattern;
  std::vector<std::pair<const char*, int32_t>> special;
};

const std::vector<Known>& known_files() {
  static const std::vector<Known> files = {
      {50256, "gpt2", {{"<|endoftext|>", 50256}}},
      {100256,
       "cl100k",
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {199998, "o200k", {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {128000, "llama3", {{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001}}},
      {151643, "qwen2", {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}}};
  return files;
}

struct Line {
  std::string bytes;
  int32_t rank = 0;
};

std::optional<Line> parse(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = decode_base64(line.substr(0, space));
  Line result;
  const char* const end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(line.data() + space + 1, end, result.rank);
  if (!bytes || bytes->empty() || error != std::errc() || rest != end || result.rank < 0 ||
      result.rank >= 1 << 24)
    return std::nullopt;
  result.bytes = std::move(*bytes);
  return result;
}

}  // namespace

bool is_tiktoken_file(std::string_view bytes) {
  return parse(bytes.substr(0, bytes.find('\n'))).has_value();
}

TokenizerDescription read_tiktoken_file(std::string_view bytes, std::string_view pattern,
                                        std::string_view name, std::deque<std::string>& storage) {
  TokenizerDescription out{.name = std::string(name)};
  ModelStep& model = out.model;
  model.vocabulary_element = out.name;
  model.merges_element = out.name;
  model.pieces_are_bytes = true;
  model.merges_by_pieces = true;
  model.ignore_merges = true;
  size_t number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = bytes.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    auto parsed = parse(line);
    check_input(parsed.has_value(), "{}, line {}: expected a token in base64 and its rank", name, number);
    storage.push_back(std::move(parsed->bytes));
    model.pieces.push_back({.text = storage.back(), .id = parsed->rank});
  }
  const Known* known = nullptr;
  for (const Known& file : known_files()) {
    if (file.ranks == model.pieces.size()) known = &file;
  }
  if (pattern.empty()) {
    check_input(known != nullptr,
                "{}: how texts are split is not written in a tiktoken file, and one of {} ranks is not "
                "known; name the "
                "pattern (gpt2, cl100k, o200k, llama3, qwen2)",
                name, model.pieces.size());
    pattern = known->pattern;
  }
  if (known != nullptr && pattern == known->pattern) {
    for (const auto& [content, id] : known->special)
      out.added_tokens.push_back({.content = content, .id = id, .special = true});
  }
  out.pre_tokenizer.push_back({.kind = PreTokenizerKind::split,
                               .element = out.name,
                               .pattern = {std::string(split_pattern(pattern)), true}});
  out.pre_tokenizer.push_back({.kind = PreTokenizerKind::byte_level,
                               .element = out.name,
                               .add_prefix_space = false,
                               .use_regex = false});
  out.decoder.push_back({.kind = DecoderKind::byte_level, .element = out.name});
  return out;
}

}  // namespace megalith
