// Reads a Hugging Face tokenizer.json. What is not understood is an error that names the element, never
// skipped.
#include <simdjson.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "megalith/text/json_node.h"
#include "megalith/text/tokenizer_implementation.h"

namespace megalith {

namespace {

void read_added_tokens(const JsonNode& root, TokenizerDescription& out) {
  const auto list = root.member("added_tokens");
  if (!list) return;
  for (const JsonNode& node : list->as_array()) {
    node.only_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = node.required("content").text();
    token.id = node.required("id").id();
    token.special = node.boolean("special", false);
    token.single_word = node.boolean("single_word", false);
    token.lstrip = node.boolean("lstrip", false);
    token.rstrip = node.boolean("rstrip", false);
    token.normalized = node.boolean("normalized", !token.special);
    if (token.content.empty()) fail_input("{}.content: empty", node.path());
    out.added_tokens.push_back(std::move(token));
  }
}

void read_length_settings(const JsonNode& root, TokenizerDescription& out) {
  // What is cut may be long; what is filled up takes memory, however short a text is.
  constexpr int64_t kLongest = int64_t{1} << 30, kLongestPadded = 1 << 20;
  if (const auto node = root.member("truncation")) {
    node->only_keys({"direction", "max_length", "strategy", "stride"});
    Truncation read;
    read.maximum_length = node->required("max_length").integer(0, kLongest);
    const std::string_view direction = node->text("direction", "Right");
    if (direction != "Right" && direction != "Left")
      node->required("direction").wrong("expected Right or Left");
    read.from_left = direction == "Left";
    out.truncation = read;
  }
  if (const auto node = root.member("padding")) {
    node->only_keys({"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
    Padding read;
    const JsonNode strategy = node->required("strategy");
    if (strategy.is_object()) {
      read.fixed_length = strategy.required("Fixed").integer(0, kLongestPadded);
    } else if (strategy.text() != "BatchLongest") {
      strategy.wrong("expected BatchLongest or a Fixed length");
    }
    const std::string_view direction = node->text("direction", "Right");
    if (direction != "Right" && direction != "Left")
      node->required("direction").wrong("expected Right or Left");
    read.on_left = direction == "Left";
    if (const auto multiple = node->member("pad_to_multiple_of"))
      read.multiple_of = multiple->integer(0, kLongestPadded);
    if (const auto id = node->member("pad_id")) read.id = id->id();
    out.padding = read;
  }
}

ModelKind kind_of(const JsonNode& model) {
  if (const auto type = model.member("type")) {
    if (type->text() == "BPE") return ModelKind::bpe;
    if (type->text() == "Unigram") return ModelKind::unigram;
    if (type->text() == "WordPiece") return ModelKind::word_piece;
    if (type->text() == "WordLevel") return ModelKind::word_level;
    type->wrong(fmt::format("model '{}' is not supported", type->text()));
  }
  // Old files name no type.
  if (model.member("merges")) return ModelKind::bpe;
  if (model.member("unk_id")) return ModelKind::unigram;
  return model.member("max_input_chars_per_word") ? ModelKind::word_piece : ModelKind::word_level;
}

void read_vocabulary(const JsonNode& vocabulary, ModelStep& out) {
  const simdjson::dom::object entries = vocabulary.as_object();
  out.pieces.reserve(entries.size());
  for (const auto field : entries) {
    int64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS || id < 0 || id > kMaximumTokenId) {
      fail_input("{}['{}']: expected a token id from 0 to {}", vocabulary.path(), field.key, kMaximumTokenId);
    }
    out.pieces.push_back({.text = field.key, .id = static_cast<int32_t>(id)});
  }
}

// A score as the tokenizers library reads it. Its JSON parser takes the digits as a whole number, rounds
// that, and divides by a power of ten, which can end a bit beside the nearest double; between splits of equal
// worth that bit decides. The digits are the shortest ones that give the double, which is what writers of
// JSON write.
double score_as_read(double nearest) {
  std::array<char, 40> buffer{};
  const auto written =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), nearest, std::chars_format::scientific);
  uint64_t digits = 0;
  int exponent = 0, behind_point = 0;
  bool point = false, negative = false;
  for (const char* at = buffer.data(); at < written.ptr; ++at) {
    if (*at == '-') negative = true;
    if (*at == '.') point = true;
    if (*at >= '0' && *at <= '9') {
      digits = digits * 10 + static_cast<uint64_t>(*at - '0');
      behind_point += point ? 1 : 0;
    }
    if (*at != 'e') continue;
    std::from_chars(at[1] == '+' ? at + 2 : at + 1, written.ptr, exponent);
    break;
  }
  exponent -= behind_point;
  // Numbers beyond these have no exact power of ten; no score is that large or small.
  if (!std::isfinite(nearest) || exponent < -22 || exponent > 22) return nearest;
  double power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10;
  const double whole = static_cast<double>(digits);
  const double value = exponent < 0 ? whole / power : whole * power;
  return negative ? -value : value;
}

void read_scored_vocabulary(const JsonNode& vocabulary, ModelStep& out) {
  const simdjson::dom::array entries = vocabulary.raw_array();
  out.pieces.reserve(entries.size());
  for (const simdjson::dom::element entry : entries) {
    simdjson::dom::array pair;
    std::string_view text;
    double score = 0;
    size_t position = 0;
    bool good = entry.get(pair) == simdjson::SUCCESS;
    if (good) {
      for (const simdjson::dom::element part : pair) {
        if (position == 0) good = good && part.get(text) == simdjson::SUCCESS;
        if (position == 1) good = good && part.get(score) == simdjson::SUCCESS;
        ++position;
      }
    }
    if (!good || position != 2)
      fail_input("{}[{}]: expected a piece and its score", vocabulary.path(), out.pieces.size());
    if (out.pieces.size() > static_cast<size_t>(kMaximumTokenId))
      vocabulary.wrong(fmt::format("more than {} pieces", kMaximumTokenId));
    out.pieces.push_back({.text = text,
                          .id = static_cast<int32_t>(out.pieces.size()),
                          .score = static_cast<float>(score),
                          .exact_score = score_as_read(score)});
  }
}

void read_merges(const JsonNode& merges, ModelStep& out) {
  const simdjson::dom::array list = merges.raw_array();
  out.merges.reserve(list.size());
  for (const simdjson::dom::element item : list) {
    std::string_view parts[2];
    std::string_view line;
    simdjson::dom::array pair;
    bool good = true;
    if (item.get(line) == simdjson::SUCCESS) {
      const size_t space = line.find(' ');
      good = space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos;
      if (good) {
        parts[0] = line.substr(0, space);
        parts[1] = line.substr(space + 1);
      }
    } else {
      size_t position = 0;
      good = item.get(pair) == simdjson::SUCCESS;
      if (good) {
        for (const simdjson::dom::element part : pair) {
          good = good && position < 2 && part.get(parts[position]) == simdjson::SUCCESS;
          position = std::min<size_t>(position + 1, 2);
        }
      }
      good = good && position == 2;
    }
    if (!good)
      fail_input("{}[{}]: expected two pieces and one space between them", merges.path(), out.merges.size());
    out.merges.emplace_back(parts[0], parts[1]);
  }
}

void read_model(const JsonNode& root, TokenizerDescription& out) {
  const JsonNode model = root.required("model");
  ModelStep& read = out.model;
  read.kind = kind_of(model);
  const JsonNode vocabulary = model.required("vocab");
  read.vocabulary_element = vocabulary.path();
  read.merges_element = model.path() + ".merges";
  read.unknown_element = model.path() + ".unk_token";
  if (const auto unknown = model.member("unk_token"); unknown && read.kind != ModelKind::unigram)
    read.unknown_token = unknown->text();
  switch (read.kind) {
    case ModelKind::bpe:
      model.only_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
      if (const auto dropout = model.member("dropout"); dropout && dropout->number() != 0)
        dropout->wrong("merge dropout is not supported");
      read.continuing_prefix = model.text("continuing_subword_prefix", "");
      read.end_of_word_suffix = model.text("end_of_word_suffix", "");
      read.fuse_unknown = model.boolean("fuse_unk", false);
      read.byte_fallback = model.boolean("byte_fallback", false);
      read.ignore_merges = model.boolean("ignore_merges", false);
      read_vocabulary(vocabulary, read);
      read_merges(model.required("merges"), read);
      break;
    case ModelKind::unigram:
      model.only_keys({"type", "unk_id", "vocab", "byte_fallback"});
      read.unknown_element = model.path() + ".unk_id";
      read.fuse_unknown = true;
      read.byte_fallback = model.boolean("byte_fallback", false);
      read_scored_vocabulary(vocabulary, read);
      if (const auto unknown = model.member("unk_id"))
        read.unknown_id = unknown->integer(0, static_cast<int64_t>(read.pieces.size()) - 1);
      break;
    case ModelKind::word_piece:
      model.only_keys(
          {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
      read.continuing_prefix = model.text("continuing_subword_prefix", "##");
      if (const auto longest = model.member("max_input_chars_per_word"))
        read.maximum_word_characters = longest->integer(0, int64_t{1} << 40);
      if (!read.unknown_token) read.unknown_token = "[UNK]";
      read_vocabulary(vocabulary, read);
      break;
    case ModelKind::word_level:
      model.only_keys({"type", "unk_token", "vocab"});
      if (!read.unknown_token) read.unknown_token = "<unk>";
      read_vocabulary(vocabulary, read);
      break;
    case ModelKind::scored_bpe:
      break;  // has no form in tokenizer.json
  }
}

}  // namespace

std::unique_ptr<Tokenizer::Implementation> read_tokenizer_json(std::string_view json, std::string_view name) {
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  const auto error = parser.parse(json.data(), json.size()).get(document);
  if (error != simdjson::SUCCESS) fail_input("{}: not valid JSON: {}", name, simdjson::error_message(error));
  const JsonNode root(document, std::string(name));
  if (!document.is_object()) root.wrong("expected an object");
  root.only_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                  "post_processor", "decoder", "model"});
  if (const auto version = root.member("version"); version && version->text() != "1.0") {
    version->wrong("only version 1.0 is supported");
  }
  TokenizerDescription description{.name = std::string(name)};
  read_added_tokens(root, description);
  read_length_settings(root, description);
  if (const auto node = root.member("normalizer")) read_normalizer(*node, description);
  if (const auto node = root.member("pre_tokenizer")) read_pre_tokenizer(*node, description);
  if (const auto node = root.member("post_processor")) read_post_processor(*node, description);
  if (const auto node = root.member("decoder")) read_decoder(*node, description);
  read_model(root, description);
  auto out = build_tokenizer(std::move(description));
  out->json = json;
  return out;
}

}  // namespace megalith
