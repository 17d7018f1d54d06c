// Writes tokenizers into GGUF files.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/model/gguf_pre_tokenizers.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/special_tokens.h"
#include "megalith/text/tokenizer_implementation.h"

namespace megalith {

namespace {

using Json = nlohmann::json;
using Parts = Tokenizer::Implementation;
using namespace gguf_token;

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

[[noreturn]] void refuse(const std::string& what) {
  fail_input("GGUF cannot hold this tokenizer: {}", what);
}

// A step of a tokenizer.json by its place; those of other files have none.
[[noreturn]] void refuse_step(const std::string& element, const std::string& what) {
  refuse(element.empty() ? what : element + ": " + what);
}

Json json_of(const std::vector<PreTokenizerStep>& steps) {
  Json list = Json::array();
  for (const PreTokenizerStep& step : steps) {
    if (step.kind == PreTokenizerKind::split) {
      list.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", step.pattern.text}}},
                      {"behavior", "Isolated"},
                      {"invert", step.invert}});
    } else if (step.kind == PreTokenizerKind::digits) {
      list.push_back({{"type", "Digits"}, {"individual_digits", step.individual_digits}});
    } else {
      list.push_back({{"type", "ByteLevel"},
                      {"add_prefix_space", step.add_prefix_space},
                      {"use_regex", step.use_regex}});
    }
  }
  if (list.size() == 1) return list[0];
  return {{"type", "Sequence"}, {"pretokenizers", list}};
}

// A pre-tokenizer with its defaults filled in and without what only concerns offsets.
Json essence(Json pre) {
  const auto normalize = [](Json& step) {
    step.erase("trim_offsets");
    if (step.value("type", "") == "ByteLevel" && !step.contains("use_regex")) step["use_regex"] = true;
  };
  if (!pre.is_object()) return pre;
  normalize(pre);
  if (pre.contains("pretokenizers")) {
    for (Json& step : pre["pretokenizers"]) normalize(step);
  }
  return pre;
}

// llama.cpp derives ignore_merges from the pre-tokenizer's name. Where the file says otherwise, it may make
// no difference: it does when a piece's own merges do not lead to it.
void check_merges_may_be(const Json& json, bool ignored) {
  if (json["model"].value("ignore_merges", false) == ignored) return;
  Json other = json;
  other["model"]["ignore_merges"] = ignored;
  const Tokenizer stated = Tokenizer::from_json(json.dump()), implied = Tokenizer::from_json(other.dump());
  for (int64_t id = 0; id < stated.vocab_size(); ++id) {
    if (!stated.has_id(static_cast<int32_t>(id))) continue;
    const std::string_view text = stated.token_bytes(static_cast<int32_t>(id));
    if (stated.encode(text) != implied.encode(text)) {
      refuse(fmt::format("its ignore_merges is {}, with which token {} is encoded otherwise", !ignored, id));
    }
  }
}

// The token before and the token behind a text; negative for nothing.
struct Affixes {
  explicit Affixes(const Parts& parts) {
    if (parts.prefix_ids.size() > 1 || parts.suffix_ids.size() > 1)
      refuse("post_processor: it puts more than one token before or after a text");
    if (!parts.prefix_ids.empty()) before = parts.prefix_ids.front();
    if (!parts.suffix_ids.empty()) after = parts.suffix_ids.front();
  }
  int64_t before = -1, after = -1;
};

void add_id(const char* key, int64_t id, GgufWriter& writer) {
  if (id >= 0) writer.add(key, static_cast<uint32_t>(id));
}

void add_end_ids(const std::vector<int32_t>& ends, GgufWriter& writer) {
  constexpr const char* kEndKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
  if (ends.size() > std::size(kEndKeys))
    refuse(fmt::format("{} tokens end a text; it has room for 3", ends.size()));
  for (size_t i = 0; i < ends.size(); ++i) add_id(kEndKeys[i], ends[i], writer);
}

void add_special_ids(const Parts& parts, const std::vector<int32_t>& end_of_text, GgufWriter& writer) {
  const Affixes affixes(parts);
  const SpecialTokenIds named = special_token_ids(parts.description.added_tokens);
  std::vector<int32_t> ends = end_of_text;
  if (ends.empty() && affixes.after >= 0) ends.push_back(static_cast<int32_t>(affixes.after));
  if (ends.empty() && named.end_of_text >= 0) ends.push_back(static_cast<int32_t>(named.end_of_text));
  if (affixes.after >= 0 && affixes.after != ends.front()) {
    refuse(fmt::format("token {} stands after a text, but token {} ends one", affixes.after, ends.front()));
  }
  add_id("tokenizer.ggml.bos_token_id", affixes.before >= 0 ? affixes.before : named.beginning_of_text,
         writer);
  add_end_ids(ends, writer);
  writer.add("tokenizer.ggml.add_bos_token", affixes.before >= 0);
  writer.add("tokenizer.ggml.add_eos_token", affixes.after >= 0);
}

void check_plain(const AddedToken& token) {
  const char* const flag = token.lstrip        ? "lstrip"
                           : token.rstrip      ? "rstrip"
                           : token.single_word ? "single_word"
                                               : nullptr;
  if (flag != nullptr) refuse(fmt::format("added token '{}' has {}", token.content, flag));
}

// The lists that have one entry for each id of the model.
class Vocabulary {
 public:
  explicit Vocabulary(int64_t size)
      : tokens_(static_cast<size_t>(size)), types_(static_cast<size_t>(size), kUnused), set_(types_.size()) {}

  void set(int64_t id, std::string_view text, Type type) {
    if (id >= size()) refuse(fmt::format("id {} lies outside the model's {} tokens", id, size()));
    tokens_[static_cast<size_t>(id)] = text;
    types_[static_cast<size_t>(id)] = type;
    set_[static_cast<size_t>(id)] = true;
  }
  // Names the ids that have no token. llama.cpp refuses two tokens with the same text.
  void finish() {
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (!set_[id]) tokens_[id] = fmt::format("[PAD{}]", id);
      if (!seen.insert(tokens_[id]).second)
        refuse(fmt::format("token {} would be '{}' too", id, tokens_[id]));
    }
  }
  void write(GgufWriter& writer) const {
    writer.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types_));
  }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& text(int64_t id) const { return tokens_[static_cast<size_t>(id)]; }
  Type type(int64_t id) const { return static_cast<Type>(types_[static_cast<size_t>(id)]); }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::vector<bool> set_;
};

void add_byte_level(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                    GgufWriter& writer) {
  const Json json = Json::parse(tokenizer.to_json());
  const Parts& parts = tokenizer.implementation();
  if (!parts.description.normalizer.empty())
    refuse_step(parts.description.normalizer[0].element, "it normalises texts");
  const GgufPreTokenizer* kind = nullptr;
  for (const GgufPreTokenizer& candidate : gguf_pre_tokenizers()) {
    if (essence(json_of(candidate.steps)) == essence(json.value("pre_tokenizer", Json())) && kind == nullptr)
      kind = &candidate;
  }
  if (kind == nullptr) refuse("its pre-tokenizer has no name there");
  check_merges_may_be(json, kind->ignore_merges);
  Vocabulary written(vocabulary);
  const Json& model = json.at("model");
  for (const auto& [text, id] : model.at("vocab").items()) written.set(id.get<int64_t>(), text, kNormal);
  std::vector<std::string> merges;
  std::set<std::string> joined;
  for (const Json& merge : model.at("merges")) {
    merges.push_back(merge.is_array() ? merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>()
                                      : merge.get<std::string>());
    const size_t space = merges.back().find(' ');
    joined.insert(merges.back().substr(0, space) + merges.back().substr(space + 1));
  }
  for (const AddedToken& token : parts.description.added_tokens) {
    check_plain(token);
    if (joined.contains(token.content))
      refuse(fmt::format("added token '{}' is a result of merges too", token.content));
    written.set(token.id, token.content, token.special ? kControl : kUserDefined);
  }
  written.finish();
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", kind->names.front());
  written.write(writer);
  writer.add("tokenizer.ggml.merges", std::span<const std::string>(merges));
  add_special_ids(parts, end_of_text, writer);
}

// SentencePiece's BPE: GGUF has scores for pieces, and any two neighbours that make a piece are joined.
class ScoredWriter {
 public:
  ScoredWriter(const Tokenizer& tokenizer, int64_t vocabulary)
      : parts_(tokenizer.implementation()), model_(parts_.description.model), written_(vocabulary) {}

  void write(const std::vector<int32_t>& end_of_text, GgufWriter& writer) {
    const bool prefix = read_white_space();
    check_model();
    fill(prefix);
    fill_scores();
    writer.add("tokenizer.ggml.model", "llama");
    writer.add("tokenizer.ggml.pre", "default");
    written_.write(writer);
    writer.add("tokenizer.ggml.scores", std::span<const float>(scores_));
    add_special_ids(parts_, end_of_text, writer);
    add_id("tokenizer.ggml.unknown_token_id", unknown_id(), writer);
    for (const char* const name : {"<pad>", "[PAD]"}) {
      const auto pad = parts_.added_by_content.find(name);
      if (pad == parts_.added_by_content.end()) continue;
      add_id("tokenizer.ggml.padding_token_id", pad->second, writer);
      break;
    }
    writer.add("tokenizer.ggml.add_space_prefix", prefix);
  }

 private:
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

  // Whether a space is put before every text and behind every added token; all else that a normalizer or a
  // pre-tokenizer could do but to spell spaces, GGUF cannot say.
  bool read_white_space() const {
    bool prefix = false, spelled = false;
    for (const NormalizerStep& step : parts_.description.normalizer) {
      if (step.kind == NormalizerKind::sentencepiece) {
        if (!step.charsmap.empty()) refuse_step(step.element, "it has a map of characters");
        if (step.remove_extra_whitespaces) refuse("its normalizer_spec.remove_extra_whitespaces is on");
        if (!step.escape_whitespaces) refuse("its normalizer_spec.escape_whitespaces is off");
        if (step.add_dummy_prefix && step.whitespace_as_suffix)
          refuse("its trainer_spec.treat_whitespace_as_suffix is on");
        prefix = step.add_dummy_prefix;
        spelled = true;
      } else if (step.kind == NormalizerKind::prepend && !prefix && step.content == kSpaceSymbol) {
        prefix = true;
      } else if (step.kind == NormalizerKind::replace && !step.pattern.is_regex && step.pattern.text == " " &&
                 step.content == kSpaceSymbol) {
        spelled = true;
      } else {
        refuse_step(step.element, "it can only put U+2581 before a text and for spaces");
      }
    }
    for (const PreTokenizerStep& step : parts_.description.pre_tokenizer) {
      if (step.kind == PreTokenizerKind::metaspace) {
        if (step.character != kSpaceSymbol) refuse_step(step.element, "its replacement is not U+2581");
        if (step.split) refuse_step(step.element, "its split is on");
        if (step.prepend != PrependScheme::never) {
          refuse_step(step.element,
                      "its prepend_scheme is not \"never\"; GGUF puts a space before every text and behind "
                      "every added token, as a Prepend normalizer and a tokenizer.model do");
        }
        spelled = true;
        continue;
      }
      // There are no spaces any more that it could split at.
      const bool idle = spelled && step.kind == PreTokenizerKind::split && !step.pattern.is_regex &&
                        step.pattern.text == " " && !step.invert;
      if (!idle) refuse_step(step.element, "it splits texts");
    }
    if (!spelled) refuse("it does not spell spaces as U+2581");
    return prefix;
  }

  void check_model() const {
    if (!model_.byte_fallback) refuse("its model has no byte_fallback");
    for (int byte = 0; byte < 256; ++byte) {
      if (parts_.pieces.find(byte_text(byte)) < 0)
        refuse(fmt::format("its model has no piece '{}'", byte_text(byte)));
    }
    if (model_.ignore_merges) refuse("its ignore_merges is true");
    if (!model_.continuing_prefix.empty()) refuse("it has a continuing_subword_prefix");
    if (!model_.end_of_word_suffix.empty()) refuse("it has an end_of_word_suffix");
  }

  static std::string byte_text(int byte) { return fmt::format("<0x{:02X}>", byte); }
  int64_t unknown_id() const {
    if (model_.unknown_id) return *model_.unknown_id;
    return model_.unknown_token ? parts_.pieces.find(*model_.unknown_token) : -1;
  }

  void fill(bool prefix) {
    for (const VocabularyPiece& piece : parts_.piece_info) {
      Type type = kNormal;
      if (piece.kind == PieceKind::user_defined) type = kUserDefined;
      if (piece.kind == PieceKind::unused) type = kUnused;
      if (model_.as_sentencepiece && type == kUnused)
        refuse(fmt::format("piece {} is an unused one, which SentencePiece takes apart again", piece.id));
      const std::string_view text = parts_.pieces.bytes(piece.id);
      // There the model finds these behind the normalizer, and the text goes on behind them.
      if (model_.as_sentencepiece && type == kUserDefined && (prefix || holds_space(text)))
        refuse(fmt::format("piece {} is user-defined, beside spaces that the normalizer puts", piece.id));
      written_.set(piece.id, text, type);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t id = parts_.pieces.find(byte_text(byte));
      written_.set(id, byte_text(byte), kByte);
    }
    for (const AddedToken& token : parts_.description.added_tokens) {
      check_plain(token);
      if (token.normalized && !parts_.description.normalizer.empty() &&
          (prefix || holds_space(token.content)))
        refuse(fmt::format("added token '{}' is looked for in normalised text", token.content));
      const Type special = token.id == unknown_id() ? kUnknown : kControl;
      written_.set(token.id, token.content, token.special ? special : kUserDefined);
    }
    written_.finish();
  }
  static bool holds_space(std::string_view text) {
    return text.find(' ') != std::string_view::npos || text.find(kSpaceSymbol) != std::string_view::npos;
  }

  // The rank of joining two neighbours, by the tokenizer as it is.
  struct Symbol {
    std::string_view text;
    int32_t id;  // -1: no piece
  };
  Merge merge_of(const Symbol& left, const Symbol& right) const {
    if (model_.kind == ModelKind::scored_bpe) {
      const int32_t id = parts_.pieces.find({left.text.data(), left.text.size() + right.text.size()});
      return id < 0 || ranks_[static_cast<size_t>(id)] == kNever ? Merge{kNever, -1}
                                                                 : Merge{ranks_[static_cast<size_t>(id)], id};
    }
    if (left.id < 0 || right.id < 0) return {kNever, -1};
    const Merge* const merge = merges_.find(left.id, right.id);
    return merge == nullptr ? Merge{kNever, -1} : *merge;
  }

  // What becomes of a text alone: the number of symbols that are left, the id of the first, and the rank of
  // the last merge.
  struct Outcome {
    size_t symbols = 0;
    int32_t id = -1;
    uint32_t last_rank = kNever;
  };
  Outcome outcome(std::string_view text) const {
    std::vector<Symbol> symbols;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      next_code_point(text, at);
      const std::string_view character = text.substr(begin, at - begin);
      symbols.push_back({character, parts_.pieces.find(character)});
    }
    Outcome out;
    std::vector<Merge> joined(symbols.size());
    const auto look = [&](size_t i) { joined[i] = merge_of(symbols[i], symbols[i + 1]); };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) look(i);
    while (symbols.size() > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < symbols.size(); ++i) {
        if (joined[i].rank < joined[best].rank) best = i;
      }
      if (joined[best].rank == kNever) break;
      out.last_rank = joined[best].rank;
      symbols[best] = {{symbols[best].text.data(), symbols[best].text.size() + symbols[best + 1].text.size()},
                       joined[best].id};
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      joined.erase(joined.begin() + static_cast<ptrdiff_t>(best));
      if (best > 0) look(best - 1);
      if (best + 1 < symbols.size()) look(best);
    }
    out.symbols = symbols.size();
    if (!symbols.empty()) out.id = symbols.front().id;
    return out;
  }

  // Merges never reach over the bounds of a token, so that whatever stands around a piece, it is made as it
  // is made alone: at most one pair of symbols is ever left to be joined into it. When the tokenizer joins
  // that pair, the rank of that merge is the piece's own, and its score is minus that. When the tokenizer
  // leaves the pair, GGUF cannot say so. When more than two symbols are left, nothing will ever make the
  // piece.
  void fill_scores() {
    if (model_.kind == ModelKind::bpe) {
      for (size_t rank = 0; rank < parts_.merges.size(); ++rank) {
        const auto [left, right] = parts_.merges[rank];
        const std::string text = std::string(parts_.pieces.bytes(left)).append(parts_.pieces.bytes(right));
        for (const int32_t side : {left, right}) {
          if (written_.type(side) == kByte)
            refuse(fmt::format("{}[{}]: it joins a byte", model_.merges_element, rank));
        }
        merges_.insert(left, right, {static_cast<uint32_t>(rank), parts_.pieces.find(text)});
      }
      // Beyond these, neighbouring ranks are the same float.
      if (parts_.merges.size() >= (size_t{1} << 24)) refuse("it has more than 2^24 merges");
    } else {
      rank_scores();
    }
    float lowest = -static_cast<float>(parts_.merges.size());
    for (const VocabularyPiece& piece : parts_.piece_info) lowest = std::min(lowest, piece.score);
    scores_.assign(static_cast<size_t>(written_.size()), lowest);
    for (int64_t id = 0; id < written_.size(); ++id) check_and_score(id);
    if (model_.kind == ModelKind::scored_bpe) {
      for (const VocabularyPiece& piece : parts_.piece_info)
        scores_[static_cast<size_t>(piece.id)] = piece.score;
    }
  }
  // Equal scores are of the same rank.
  void rank_scores() {
    std::vector<float> sorted;
    for (const VocabularyPiece& piece : parts_.piece_info) sorted.push_back(piece.score);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    ranks_.assign(static_cast<size_t>(parts_.pieces.size()), kNever);
    for (const VocabularyPiece& piece : parts_.piece_info) {
      const bool joins = !model_.as_sentencepiece || piece.kind == PieceKind::normal ||
                         piece.kind == PieceKind::user_defined;
      const auto place = std::lower_bound(sorted.begin(), sorted.end(), piece.score, std::greater<>());
      if (joins) ranks_[static_cast<size_t>(piece.id)] = static_cast<uint32_t>(place - sorted.begin());
    }
  }
  void check_and_score(int64_t id) {
    const std::string& text = written_.text(id);
    // The model sees neither spaces nor what was found in the text before.
    if (text.empty() || text.find(' ') != std::string::npos) return;
    if (written_.type(id) == kUserDefined && !holds_space(text)) return;
    const Outcome found = outcome(text);
    const bool is_character = found.symbols == 1 && found.last_rank == kNever;
    const bool known =
        !is_character || (found.id == id && (ranks_.empty() || ranks_[static_cast<size_t>(id)] != kNever));
    if (found.symbols == 2 || !known) {
      refuse(fmt::format("token {} ('{}') is not made by its merges, but would be made by scores", id, text));
    }
    if (found.symbols == 1 && !is_character && ranks_.empty())
      scores_[static_cast<size_t>(id)] = -static_cast<float>(found.last_rank);
  }

  const Parts& parts_;
  const ModelStep& model_;
  Vocabulary written_;
  MergeTable merges_;
  std::vector<uint32_t> ranks_;  // scored_bpe, by id
  std::vector<float> scores_;
};

bool is_bracketed(std::string_view text) {
  return text.size() > 1 && text.front() == '[' && text.back() == ']';
}

// A word that the pre-tokenizer would cut is no word.
bool could_be_word(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return (c >= 0 && c <= ' ') || (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  });
}

// WordPiece: the file marks what begins a word, where the vocabulary marks what continues one.
void add_word_piece(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                    GgufWriter& writer) {
  const Parts& parts = tokenizer.implementation();
  const TokenizerDescription& description = parts.description;
  const ModelStep& model = description.model;
  const std::vector<NormalizerStep>& normalizer = description.normalizer;
  if (normalizer.empty()) refuse("it has no BertNormalizer");
  for (const NormalizerStep& step : normalizer) {
    if (step.kind != NormalizerKind::bert || normalizer.size() > 1)
      refuse_step(step.element, "there is room for one BertNormalizer alone");
    if (!step.lowercase) refuse_step(step.element, "its lowercase is off");
    if (!step.strip_accents.value_or(true)) refuse_step(step.element, "its strip_accents is off");
    if (!step.clean_text) refuse_step(step.element, "its clean_text is off");
    if (!step.handle_chinese_chars) refuse_step(step.element, "its handle_chinese_chars is off");
  }
  const std::vector<PreTokenizerStep>& pre_tokenizer = description.pre_tokenizer;
  if (pre_tokenizer.size() != 1 || pre_tokenizer[0].kind != PreTokenizerKind::bert) {
    refuse_step(pre_tokenizer.empty() ? std::string() : pre_tokenizer[0].element,
                "its pre_tokenizer is not a BertPreTokenizer");
  }
  if (model.continuing_prefix != "##") refuse("its continuing_subword_prefix is not \"##\"");
  const int32_t unknown = parts.pieces.find(model.unknown_token.value_or(""));
  if (unknown < 0) refuse(fmt::format("{}: it is not in the vocabulary", model.unknown_element));

  Vocabulary written(vocabulary);
  for (const VocabularyPiece& piece : parts.piece_info) {
    if (parts.added[static_cast<size_t>(piece.id)]) continue;
    const std::string_view text = parts.pieces.bytes(piece.id);
    const bool continues = text.starts_with("##");
    const std::string phantom =
        continues ? std::string(text.substr(2)) : std::string(kSpaceSymbol).append(text);
    if (phantom.empty() || (continues && (is_bracketed(phantom) || phantom.starts_with(kSpaceSymbol))))
      refuse(fmt::format("token {} ('{}') has no spelling there", piece.id, text));
    written.set(piece.id, phantom, kNormal);
  }
  for (const AddedToken& token : description.added_tokens) {
    check_plain(token);
    if (token.normalized)
      refuse(fmt::format("added token '{}' is looked for in normalised text", token.content));
    const bool is_piece = parts.pieces.find(token.content) == token.id;
    if (token.content.starts_with(kSpaceSymbol) ||
        (!is_piece && (could_be_word(token.content) || token.content.starts_with("##"))))
      refuse(fmt::format("added token '{}' would be a piece of words", token.content));
    const Type special = token.id == unknown ? kUnknown : kControl;
    written.set(token.id, token.content, token.special ? special : kUserDefined);
  }
  written.finish();

  const Affixes affixes(parts);
  const auto named = [&](const char* name) { return int64_t{tokenizer.id_of(name).value_or(-1)}; };
  const int64_t first = affixes.before >= 0 ? affixes.before : named("[CLS]");
  writer.add("tokenizer.ggml.model", "bert");
  written.write(writer);
  add_id("tokenizer.ggml.bos_token_id", first, writer);
  add_id("tokenizer.ggml.cls_token_id", first, writer);
  add_id("tokenizer.ggml.seperator_token_id", affixes.after >= 0 ? affixes.after : named("[SEP]"), writer);
  add_id("tokenizer.ggml.unknown_token_id", unknown, writer);
  add_id("tokenizer.ggml.padding_token_id", named("[PAD]"), writer);
  add_id("tokenizer.ggml.mask_token_id", named("[MASK]"), writer);
  add_end_ids(end_of_text, writer);
  writer.add("tokenizer.ggml.add_bos_token", affixes.before >= 0);
  writer.add("tokenizer.ggml.add_sep_token", affixes.after >= 0);
  if (model.maximum_word_characters <= std::numeric_limits<uint32_t>::max())
    writer.add(kGgufLongestWordKey, static_cast<uint32_t>(model.maximum_word_characters));
}

bool spells_bytes(const TokenizerDescription& description) {
  return std::any_of(description.pre_tokenizer.begin(), description.pre_tokenizer.end(),
                     [](const auto& step) { return step.kind == PreTokenizerKind::byte_level; });
}

}  // namespace

void add_tokenizer_to_gguf(const Tokenizer& tokenizer, int64_t vocabulary,
                           const std::vector<int32_t>& end_of_text, GgufWriter& writer) {
  const TokenizerDescription& description = tokenizer.implementation().description;
  switch (description.model.kind) {
    case ModelKind::bpe:
      if (tokenizer.implementation().byte_level || spells_bytes(description))
        return add_byte_level(tokenizer, vocabulary, end_of_text, writer);
      [[fallthrough]];
    case ModelKind::scored_bpe:
      return ScoredWriter(tokenizer, vocabulary).write(end_of_text, writer);
    case ModelKind::word_piece:
      return add_word_piece(tokenizer, vocabulary, end_of_text, writer);
    case ModelKind::unigram:
      refuse("its model is Unigram");
    case ModelKind::word_level:
      refuse("its model is WordLevel");
  }
}

}  // namespace megalith
