// Says a description again as a tokenizer.json.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/text/base64.h"
#include "megalith/text/tokenizer_implementation.h"
#include "megalith/text/tokenizer_writer.h"

namespace megalith {

namespace {

using Json = nlohmann::ordered_json;

Json pattern_json(const TextPattern& pattern) {
  return {{pattern.is_regex ? "Regex" : "String", pattern.text}};
}

Json replace_json(const TextPattern& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern_json(pattern)}, {"content", content}};
}

const char* prepend_name(PrependScheme scheme) {
  switch (scheme) {
    case PrependScheme::always:
      return "always";
    case PrependScheme::first:
      return "first";
    case PrependScheme::never:
      return "never";
  }
  return "";
}

const char* behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return "Isolated";
    case SplitBehavior::removed:
      return "Removed";
    case SplitBehavior::merged_with_previous:
      return "MergedWithPrevious";
    case SplitBehavior::merged_with_next:
      return "MergedWithNext";
    case SplitBehavior::contiguous:
      return "Contiguous";
  }
  return "";
}

// One step is itself, several are a sequence.
Json sequence(std::vector<Json> steps, const char* list) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {list, steps}};
}

Json byte_level_json(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

void add_sentencepiece_steps(const NormalizerStep& step, std::vector<Json>& steps) {
  constexpr const char* kSpaceSymbol = "\xE2\x96\x81";
  if (!step.charsmap.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(step.charsmap)}});
  if (step.remove_extra_whitespaces) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back(replace_json({" {2,}", true}, " "));
  }
  const char* const space = step.escape_whitespaces ? kSpaceSymbol : " ";
  if (step.add_dummy_prefix && step.whitespace_as_suffix) {
    steps.push_back(replace_json({"$", true}, space));  // There is no step that appends.
  } else if (step.add_dummy_prefix) {
    steps.push_back({{"type", "Prepend"}, {"prepend", space}});
  }
  if (step.escape_whitespaces) steps.push_back(replace_json({" ", false}, kSpaceSymbol));
}

Json normalizer_json(const std::vector<NormalizerStep>& normalizer) {
  std::vector<Json> steps;
  for (const NormalizerStep& step : normalizer) {
    switch (step.kind) {
      case NormalizerKind::nfc:
        steps.push_back({{"type", "NFC"}});
        break;
      case NormalizerKind::nfd:
        steps.push_back({{"type", "NFD"}});
        break;
      case NormalizerKind::nfkc:
        steps.push_back({{"type", "NFKC"}});
        break;
      case NormalizerKind::nfkd:
        steps.push_back({{"type", "NFKD"}});
        break;
      case NormalizerKind::lowercase:
        steps.push_back({{"type", "Lowercase"}});
        break;
      case NormalizerKind::strip:
        steps.push_back({{"type", "Strip"}, {"strip_left", step.left}, {"strip_right", step.right}});
        break;
      case NormalizerKind::strip_accents:
        steps.push_back({{"type", "StripAccents"}});
        break;
      case NormalizerKind::replace:
        steps.push_back(replace_json(step.pattern, step.content));
        break;
      case NormalizerKind::prepend:
        steps.push_back({{"type", "Prepend"}, {"prepend", step.content}});
        break;
      case NormalizerKind::append:
        steps.push_back({{"type", "Append"}, {"append", step.content}});
        break;
      case NormalizerKind::bert: {
        Json json = {{"type", "BertNormalizer"},
                     {"clean_text", step.clean_text},
                     {"handle_chinese_chars", step.handle_chinese_chars},
                     {"strip_accents", nullptr},
                     {"lowercase", step.lowercase}};
        if (step.strip_accents) json["strip_accents"] = *step.strip_accents;
        steps.push_back(json);
        break;
      }
      case NormalizerKind::nmt:
        steps.push_back({{"type", "Nmt"}});
        break;
      case NormalizerKind::precompiled:
        steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(step.charsmap)}});
        break;
      case NormalizerKind::byte_level:
        steps.push_back({{"type", "ByteLevel"}});
        break;
      case NormalizerKind::sentencepiece:
        add_sentencepiece_steps(step, steps);
        break;
    }
  }
  return sequence(std::move(steps), "normalizers");
}

Json pre_tokenizer_json(const std::vector<PreTokenizerStep>& pre_tokenizer) {
  std::vector<Json> steps;
  for (const PreTokenizerStep& step : pre_tokenizer) {
    switch (step.kind) {
      case PreTokenizerKind::split:
        steps.push_back({{"type", "Split"},
                         {"pattern", pattern_json(step.pattern)},
                         {"behavior", behavior_name(step.behavior)},
                         {"invert", step.invert}});
        break;
      case PreTokenizerKind::byte_level:
        steps.push_back(byte_level_json(step.add_prefix_space, true, step.use_regex));
        break;
      case PreTokenizerKind::metaspace:
        steps.push_back({{"type", "Metaspace"},
                         {"replacement", step.character},
                         {"prepend_scheme", prepend_name(step.prepend)},
                         {"split", step.split}});
        break;
      case PreTokenizerKind::digits:
        steps.push_back({{"type", "Digits"}, {"individual_digits", step.individual_digits}});
        break;
      case PreTokenizerKind::punctuation:
        steps.push_back({{"type", "Punctuation"}, {"behavior", behavior_name(step.behavior)}});
        break;
      case PreTokenizerKind::whitespace:
        steps.push_back({{"type", "Whitespace"}});
        break;
      case PreTokenizerKind::whitespace_split:
        steps.push_back({{"type", "WhitespaceSplit"}});
        break;
      case PreTokenizerKind::bert:
        steps.push_back({{"type", "BertPreTokenizer"}});
        break;
      case PreTokenizerKind::unicode_scripts:
        steps.push_back({{"type", "UnicodeScripts"}});
        break;
      case PreTokenizerKind::char_delimiter_split:
        steps.push_back({{"type", "CharDelimiterSplit"}, {"delimiter", step.character}});
        break;
      case PreTokenizerKind::fixed_length:
        steps.push_back({{"type", "FixedLength"}, {"length", step.length}});
        break;
    }
  }
  return sequence(std::move(steps), "pretokenizers");
}

Json template_json(const PostProcessorStep& step) {
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](const std::vector<TemplateToken>& list) {
    for (const TemplateToken& token : list) {
      single.push_back({{"SpecialToken", {{"id", token.name}, {"type_id", token.type_id}}}});
      tokens[token.name] = {{"id", token.name}, {"ids", token.ids}, {"tokens", token.tokens}};
    }
  };
  add(step.before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(step.after);
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json post_processor_json(const std::vector<PostProcessorStep>& post_processor) {
  std::vector<Json> steps;
  for (const PostProcessorStep& step : post_processor) {
    if (step.kind == PostProcessorKind::byte_level) {
      steps.push_back(byte_level_json(step.add_prefix_space, step.trim_offsets, true));
    } else {
      steps.push_back(template_json(step));
    }
  }
  return sequence(std::move(steps), "processors");
}

Json decoder_json(const std::vector<DecoderStep>& decoder) {
  std::vector<Json> steps;
  for (const DecoderStep& step : decoder) {
    switch (step.kind) {
      case DecoderKind::byte_level:
        steps.push_back(byte_level_json(true, true, true));
        break;
      case DecoderKind::word_piece:
        steps.push_back({{"type", "WordPiece"}, {"prefix", step.prefix}, {"cleanup", step.cleanup}});
        break;
      case DecoderKind::metaspace:
        steps.push_back({{"type", "Metaspace"},
                         {"replacement", step.character},
                         {"prepend_scheme", prepend_name(step.prepend)},
                         {"split", true}});
        break;
      case DecoderKind::replace:
        steps.push_back(replace_json(step.pattern, step.content));
        break;
      case DecoderKind::byte_fallback:
        steps.push_back({{"type", "ByteFallback"}});
        break;
      case DecoderKind::fuse:
        steps.push_back({{"type", "Fuse"}});
        break;
      case DecoderKind::strip:
        steps.push_back(
            {{"type", "Strip"}, {"content", step.character}, {"start", step.start}, {"stop", step.stop}});
        break;
      case DecoderKind::bpe:
        steps.push_back({{"type", "BPEDecoder"}, {"suffix", step.suffix}});
        break;
      case DecoderKind::ctc:
        steps.push_back({{"type", "CTC"},
                         {"pad_token", step.pad_token},
                         {"word_delimiter_token", step.word_delimiter},
                         {"cleanup", step.cleanup}});
        break;
    }
  }
  return sequence(std::move(steps), "decoders");
}

Json added_tokens_json(const std::vector<AddedToken>& tokens) {
  std::vector<const AddedToken*> sorted;
  for (const AddedToken& token : tokens) sorted.push_back(&token);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  Json list = Json::array();
  for (const AddedToken* token : sorted) {
    list.push_back({{"id", token->id},
                    {"content", token->content},
                    {"single_word", token->single_word},
                    {"lstrip", token->lstrip},
                    {"rstrip", token->rstrip},
                    {"normalized", token->normalized},
                    {"special", token->special}});
  }
  return list;
}

// The pairs that give each piece, those of better pieces first.
std::vector<std::pair<int32_t, int32_t>> merges_by_score(const Tokenizer::Implementation& tokenizer) {
  struct Scored {
    float score;
    int32_t left, right;
    uint32_t left_length;
  };
  std::vector<Scored> found;
  const PieceTable& pieces = tokenizer.pieces;
  for (const VocabularyPiece& piece : tokenizer.piece_info) {
    if (piece.kind != PieceKind::normal && piece.kind != PieceKind::user_defined) continue;
    const std::string_view text = pieces.bytes(piece.id);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const int32_t left = pieces.find(text.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = pieces.find(text.substr(cut));
      if (right >= 0) found.push_back({piece.score, left, right, static_cast<uint32_t>(cut)});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.left_length > b.left_length;
  });
  std::vector<std::pair<int32_t, int32_t>> merges;
  for (const Scored& merge : found) merges.emplace_back(merge.left, merge.right);
  return merges;
}

class ModelWriter {
 public:
  ModelWriter(const Tokenizer::Implementation& tokenizer, std::string& out)
      : tokenizer_(tokenizer), step_(tokenizer.description.model), out_(out) {}

  void write() {
    switch (step_.kind) {
      case ModelKind::bpe:
      case ModelKind::scored_bpe:
        return write_bpe();
      case ModelKind::unigram:
        return write_unigram();
      case ModelKind::word_piece:
        write_head({{"type", "WordPiece"},
                    {"unk_token", step_.unknown_token.value_or("[UNK]")},
                    {"continuing_subword_prefix", step_.continuing_prefix},
                    {"max_input_chars_per_word", step_.maximum_word_characters}});
        write_vocabulary();
        break;
      case ModelKind::word_level:
        write_head({{"type", "WordLevel"}, {"unk_token", step_.unknown_token.value_or("<unk>")}});
        write_vocabulary();
        break;
    }
    out_ += "\n  }";
  }

 private:
  static Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
  std::string quoted(int32_t id) const {
    return Json(tokenizer_.spelling(id)).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  // The members of an object, left open.
  void write_head(const Json& head) {
    std::string text = head.dump();
    text.pop_back();
    out_ += text + ",\n    ";
  }
  void write_vocabulary() {
    out_ += "\"vocab\": {";
    bool first = true;
    for (const VocabularyPiece& piece : tokenizer_.piece_info) {
      out_ += (first ? "\n      " : ",\n      ") + quoted(piece.id) + ": " + std::to_string(piece.id);
      first = false;
    }
    out_ += "\n    }";
  }
  void write_bpe() {
    Json unknown = nullptr;
    if (step_.unknown_token) unknown = *step_.unknown_token;
    if (step_.unknown_id) unknown = tokenizer_.spelling(static_cast<int32_t>(*step_.unknown_id));
    write_head({{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", unknown},
                {"continuing_subword_prefix", text_or_null(step_.continuing_prefix)},
                {"end_of_word_suffix", text_or_null(step_.end_of_word_suffix)},
                {"fuse_unk", step_.fuse_unknown},
                {"byte_fallback", step_.byte_fallback},
                {"ignore_merges", step_.ignore_merges}});
    write_vocabulary();
    out_ += ",\n    \"merges\": [";
    const auto merges = step_.kind == ModelKind::scored_bpe ? merges_by_score(tokenizer_) : tokenizer_.merges;
    bool first = true;
    for (const auto& [left, right] : merges) {
      out_ += (first ? "\n      [" : ",\n      [") + quoted(left) + ", " + quoted(right) + "]";
      first = false;
    }
    out_ += "\n    ]\n  }";
  }
  void write_unigram() {
    Json unknown = nullptr;
    if (step_.unknown_id) unknown = *step_.unknown_id;
    write_head({{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", step_.byte_fallback}});
    out_ += "\"vocab\": [";
    int32_t next = 0;
    for (const VocabularyPiece& piece : tokenizer_.piece_info) {
      check(piece.id == next, "a Unigram vocabulary must have every id from 0 on; {} is missing", next);
      const double score = step_.as_sentencepiece ? static_cast<double>(piece.score) : piece.exact_score;
      out_ += (next == 0 ? "\n      [" : ",\n      [") + quoted(piece.id) + ", " + Json(score).dump() + "]";
      ++next;
    }
    out_ += "\n    ]\n  }";
  }

  const Tokenizer::Implementation& tokenizer_;
  const ModelStep& step_;
  std::string& out_;
};

}  // namespace

std::string write_tokenizer_json(const Tokenizer::Implementation& tokenizer) {
  const TokenizerDescription& description = tokenizer.description;
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  const auto add = [&](const char* key, const Json& value) {
    out += fmt::format("  \"{}\": {},\n", key, value.dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  std::vector<AddedToken> added = description.added_tokens;
  if (description.model.as_sentencepiece) {
    // There the model itself takes them out of a text.
    for (const VocabularyPiece& piece : tokenizer.piece_info) {
      if (piece.kind == PieceKind::user_defined)
        added.push_back({.content = tokenizer.spelling(piece.id), .id = piece.id});
    }
  }
  add("added_tokens", added_tokens_json(added));
  add("normalizer", normalizer_json(description.normalizer));
  add("pre_tokenizer", pre_tokenizer_json(description.pre_tokenizer));
  add("post_processor", post_processor_json(description.post_processor));
  add("decoder", decoder_json(description.decoder));
  out += "  \"model\": ";
  ModelWriter(tokenizer, out).write();
  out += "\n}\n";
  return out;
}

}  // namespace megalith
