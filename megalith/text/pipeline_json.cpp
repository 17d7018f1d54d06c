// Normalizers, pre-tokenizers, post-processors and decoders of a tokenizer.json.
#include <map>
#include <set>

#include "megalith/base/utf8.h"
#include "megalith/text/base64.h"
#include "megalith/text/json_node.h"
#include "megalith/text/tokenizer_description.h"

namespace megalith {

namespace {

// Sequences in sequences come flat; damaged files must not nest without end (the JSON parser allows 1024).
template <class Visit>
void for_each_step(const JsonNode& node, std::string_view list, const Visit& visit) {
  if (node.required("type").text() != "Sequence") return visit(node);
  node.only_keys({"type", list});
  for (const JsonNode& step : node.required(list).as_array()) for_each_step(step, list, visit);
}

[[noreturn]] void unknown(const JsonNode& type, std::string_view what) {
  type.wrong(fmt::format("{} '{}' is not supported", what, type.text()));
}

TextPattern read_pattern(const JsonNode& node) {
  // Old files give the text alone.
  if (node.is_text()) return {std::string(node.text()), false};
  node.only_keys({"Regex", "String"});
  const auto regex = node.member("Regex");
  const auto literal = node.member("String");
  if (!regex == !literal) node.wrong("expected one of Regex and String");
  const JsonNode& which = regex ? *regex : *literal;
  if (which.text().empty()) which.wrong("the pattern is empty");
  return {std::string(which.text()), regex.has_value()};
}

std::string pattern_element(const JsonNode& node) {
  return node.is_text() ? node.path() : node.path() + (node.member("Regex") ? ".Regex" : ".String");
}

std::string read_character(const JsonNode& node) {
  const std::string_view text = node.text();
  size_t end = 0;
  if (!text.empty()) next_code_point(text, end);
  if (text.empty() || end != text.size()) node.wrong("expected one character");
  return std::string(text);
}

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string_view name = node.text();
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.wrong(fmt::format("'{}' is not a known split behavior", name));
}

PrependScheme read_prepend(const JsonNode& node) {
  if (const auto scheme = node.member("prepend_scheme")) {
    if (scheme->text() == "always") return PrependScheme::always;
    if (scheme->text() == "first") return PrependScheme::first;
    if (scheme->text() == "never") return PrependScheme::never;
    scheme->wrong(fmt::format("'{}' is not one of always, first, never", scheme->text()));
  }
  // What files said before there were schemes.
  return node.boolean("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
}

}  // namespace

void read_normalizer(const JsonNode& node, TokenizerDescription& out) {
  for_each_step(node, "normalizers", [&](const JsonNode& step) {
    static const std::map<std::string_view, NormalizerKind> kinds = {
        {"NFC", NormalizerKind::nfc},
        {"NFD", NormalizerKind::nfd},
        {"NFKC", NormalizerKind::nfkc},
        {"NFKD", NormalizerKind::nfkd},
        {"Lowercase", NormalizerKind::lowercase},
        {"Strip", NormalizerKind::strip},
        {"StripAccents", NormalizerKind::strip_accents},
        {"Replace", NormalizerKind::replace},
        {"Prepend", NormalizerKind::prepend},
        {"Append", NormalizerKind::append},
        {"BertNormalizer", NormalizerKind::bert},
        {"Nmt", NormalizerKind::nmt},
        {"Precompiled", NormalizerKind::precompiled},
        {"ByteLevel", NormalizerKind::byte_level}};
    const JsonNode type = step.required("type");
    const auto kind = kinds.find(type.text());
    if (kind == kinds.end()) unknown(type, "normalizer");
    NormalizerStep read{.kind = kind->second, .element = step.path()};
    switch (read.kind) {
      case NormalizerKind::strip:
        step.only_keys({"type", "strip_left", "strip_right"});
        read.left = step.boolean("strip_left", true);
        read.right = step.boolean("strip_right", true);
        break;
      case NormalizerKind::replace: {
        step.only_keys({"type", "pattern", "content"});
        const JsonNode pattern = step.required("pattern");
        read.pattern = read_pattern(pattern);
        read.element = pattern_element(pattern);
        read.content = step.required("content").text();
        if (read.pattern.text.empty()) pattern.wrong("the pattern is empty");
        break;
      }
      case NormalizerKind::prepend:
      case NormalizerKind::append: {
        const char* key = read.kind == NormalizerKind::prepend ? "prepend" : "append";
        step.only_keys({"type", key});
        read.content = step.required(key).text();
        break;
      }
      case NormalizerKind::bert:
        step.only_keys({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
        read.clean_text = step.boolean("clean_text", true);
        read.handle_chinese_chars = step.boolean("handle_chinese_chars", true);
        if (const auto strip = step.member("strip_accents")) read.strip_accents = strip->boolean();
        read.lowercase = step.boolean("lowercase", true);
        break;
      case NormalizerKind::precompiled: {
        step.only_keys({"type", "precompiled_charsmap"});
        if (const auto map = step.member("precompiled_charsmap")) {
          const auto bytes = decode_base64(map->text());
          if (!bytes) map->wrong("expected base64");
          read.charsmap = *bytes;
          read.element = map->path();
        }
        break;
      }
      default:
        step.only_keys({"type"});
    }
    out.normalizer.push_back(std::move(read));
  });
}

void read_pre_tokenizer(const JsonNode& node, TokenizerDescription& out) {
  for_each_step(node, "pretokenizers", [&](const JsonNode& step) {
    static const std::map<std::string_view, PreTokenizerKind> kinds = {
        {"Split", PreTokenizerKind::split},
        {"ByteLevel", PreTokenizerKind::byte_level},
        {"Metaspace", PreTokenizerKind::metaspace},
        {"Digits", PreTokenizerKind::digits},
        {"Punctuation", PreTokenizerKind::punctuation},
        {"Whitespace", PreTokenizerKind::whitespace},
        {"WhitespaceSplit", PreTokenizerKind::whitespace_split},
        {"BertPreTokenizer", PreTokenizerKind::bert},
        {"UnicodeScripts", PreTokenizerKind::unicode_scripts},
        {"CharDelimiterSplit", PreTokenizerKind::char_delimiter_split},
        {"FixedLength", PreTokenizerKind::fixed_length}};
    const JsonNode type = step.required("type");
    const auto kind = kinds.find(type.text());
    if (kind == kinds.end()) unknown(type, "pre-tokenizer");
    PreTokenizerStep read{.kind = kind->second, .element = step.path()};
    switch (read.kind) {
      case PreTokenizerKind::split: {
        step.only_keys({"type", "pattern", "behavior", "invert"});
        const JsonNode pattern = step.required("pattern");
        read.pattern = read_pattern(pattern);
        read.element = pattern_element(pattern);
        if (read.pattern.text.empty()) pattern.wrong("the pattern is empty");
        read.behavior = read_behavior(step.required("behavior"));
        read.invert = step.boolean("invert", false);
        break;
      }
      case PreTokenizerKind::byte_level:
        step.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
        read.add_prefix_space = step.boolean("add_prefix_space", true);
        read.use_regex = step.boolean("use_regex", true);
        break;
      case PreTokenizerKind::metaspace:
        step.only_keys({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
        read.character = read_character(step.required("replacement"));
        read.prepend = read_prepend(step);
        read.split = step.boolean("split", true);
        break;
      case PreTokenizerKind::digits:
        step.only_keys({"type", "individual_digits"});
        read.individual_digits = step.boolean("individual_digits", false);
        break;
      case PreTokenizerKind::punctuation:
        step.only_keys({"type", "behavior"});
        if (const auto behavior = step.member("behavior")) read.behavior = read_behavior(*behavior);
        break;
      case PreTokenizerKind::char_delimiter_split:
        step.only_keys({"type", "delimiter"});
        read.character = read_character(step.required("delimiter"));
        break;
      case PreTokenizerKind::fixed_length:
        step.only_keys({"type", "length"});
        if (const auto length = step.member("length")) read.length = length->integer(1, 1 << 30);
        break;
      default:
        step.only_keys({"type"});
    }
    out.pre_tokenizer.push_back(std::move(read));
  });
}

namespace {

// ["[SEP]", 102]
TemplateToken read_pair(const JsonNode& node) {
  const auto pair = node.as_array();
  if (pair.size() != 2) node.wrong("expected a token and its id");
  return {std::string(pair[0].text()), {pair[1].id()}, {std::string(pair[0].text())}};
}

void read_template(const JsonNode& step, PostProcessorStep& read) {
  step.only_keys({"type", "single", "pair", "special_tokens"});
  constexpr size_t kMostIds = 4096;  // A token may be named again and again, and stand for many.
  bool text_seen = false;
  size_t ids = 0;
  for (const JsonNode& part : step.required("single").as_array()) {
    if (part.member("Sequence")) {
      if (text_seen) part.wrong("the text may come only once");
      text_seen = true;
      continue;
    }
    const JsonNode special = part.required("SpecialToken");
    const JsonNode name = special.required("id");
    const JsonNode token = step.required("special_tokens").required(name.text());
    TemplateToken found;
    found.name = name.text();
    if (const auto type_id = special.member("type_id")) found.type_id = type_id->integer(0, 1 << 20);
    for (const JsonNode& id : token.required("ids").as_array()) found.ids.push_back(id.id());
    if (const auto tokens = token.member("tokens")) {
      for (const JsonNode& text : tokens->as_array()) found.tokens.emplace_back(text.text());
    }
    ids += found.ids.size() + found.tokens.size();
    if (ids > kMostIds) part.wrong("the template has too many tokens");
    (text_seen ? read.after : read.before).push_back(std::move(found));
  }
  if (!text_seen) step.wrong("the template has no place for the text");
}

}  // namespace

void read_post_processor(const JsonNode& node, TokenizerDescription& out) {
  for_each_step(node, "processors", [&](const JsonNode& step) {
    const JsonNode type = step.required("type");
    PostProcessorStep read{.element = step.path()};
    if (type.text() == "TemplateProcessing") {
      read_template(step, read);
    } else if (type.text() == "ByteLevel") {
      step.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      read.kind = PostProcessorKind::byte_level;
      read.trim_offsets = step.boolean("trim_offsets", true);
      read.add_prefix_space = step.boolean("add_prefix_space", true);
    } else if (type.text() == "BertProcessing" || type.text() == "RobertaProcessing") {
      const bool roberta = type.text() == "RobertaProcessing";
      if (roberta) {
        step.only_keys({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      } else {
        step.only_keys({"type", "sep", "cls"});
      }
      read.kind = roberta ? PostProcessorKind::roberta : PostProcessorKind::bert;
      read.before.push_back(read_pair(step.required("cls")));
      read.after.push_back(read_pair(step.required("sep")));
      read.trim_offsets = roberta && step.boolean("trim_offsets", true);
      read.add_prefix_space = step.boolean("add_prefix_space", true);
    } else {
      unknown(type, "post-processor");
    }
    out.post_processor.push_back(std::move(read));
  });
}

void read_decoder(const JsonNode& node, TokenizerDescription& out) {
  for_each_step(node, "decoders", [&](const JsonNode& step) {
    static const std::map<std::string_view, DecoderKind> kinds = {
        {"ByteLevel", DecoderKind::byte_level},
        {"WordPiece", DecoderKind::word_piece},
        {"Metaspace", DecoderKind::metaspace},
        {"Replace", DecoderKind::replace},
        {"ByteFallback", DecoderKind::byte_fallback},
        {"Fuse", DecoderKind::fuse},
        {"Strip", DecoderKind::strip},
        {"BPEDecoder", DecoderKind::bpe},
        {"CTC", DecoderKind::ctc}};
    const JsonNode type = step.required("type");
    const auto kind = kinds.find(type.text());
    if (kind == kinds.end()) unknown(type, "decoder");
    DecoderStep read{.kind = kind->second, .element = step.path()};
    switch (read.kind) {
      case DecoderKind::byte_level:
        step.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
        break;
      case DecoderKind::word_piece:
        step.only_keys({"type", "prefix", "cleanup"});
        read.prefix = step.text("prefix", "##");
        read.cleanup = step.boolean("cleanup", true);
        break;
      case DecoderKind::metaspace:
        step.only_keys({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
        read.character = read_character(step.required("replacement"));
        read.prepend = read_prepend(step);
        break;
      case DecoderKind::replace: {
        step.only_keys({"type", "pattern", "content"});
        const JsonNode pattern = step.required("pattern");
        read.pattern = read_pattern(pattern);
        read.element = pattern_element(pattern);
        if (read.pattern.text.empty()) pattern.wrong("the pattern is empty");
        read.content = step.required("content").text();
        break;
      }
      case DecoderKind::strip:
        step.only_keys({"type", "content", "start", "stop"});
        read.character = read_character(step.required("content"));
        read.start = step.required("start").integer(0, 1 << 20);
        read.stop = step.required("stop").integer(0, 1 << 20);
        break;
      case DecoderKind::bpe:
        step.only_keys({"type", "suffix"});
        read.suffix = step.text("suffix", "</w>");
        break;
      case DecoderKind::ctc:
        step.only_keys({"type", "pad_token", "word_delimiter_token", "cleanup"});
        read.pad_token = step.text("pad_token", "<pad>");
        read.word_delimiter = step.text("word_delimiter_token", "|");
        read.cleanup = step.boolean("cleanup", true);
        break;
      default:
        step.only_keys({"type"});
    }
    out.decoder.push_back(std::move(read));
  });
}

}  // namespace megalith
