// SentencePiece's BPE into GGUF.
#include <algorithm>
#include <limits>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/model/gguf_vocabulary.h"

namespace megalith::gguf_token {

namespace {

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
    if (user_defined_in_text_) writer.add(kGgufUserDefinedInTextKey, true);
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
        user_defined_in_text_ = true;
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
    if (written_.type(id) == kUserDefined && (user_defined_in_text_ || !holds_space(text))) return;
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
  bool user_defined_in_text_ = false;
  MergeTable merges_;
  std::vector<uint32_t> ranks_;  // scored_bpe, by id
  std::vector<float> scores_;
};

}  // namespace

void add_scored(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                GgufWriter& writer) {
  ScoredWriter(tokenizer, vocabulary).write(end_of_text, writer);
}

}  // namespace megalith::gguf_token
