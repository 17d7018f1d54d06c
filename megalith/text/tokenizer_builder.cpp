// Builds the parts of a tokenizer from its description, and refuses what does not fit together.
#include <algorithm>
#include <bit>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/character_bpe.h"
#include "megalith/text/tokenizer_implementation.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace megalith {

namespace {

// The pieces of a vocabulary by their text, as it is spelled.
class TextIndex {
 public:
  explicit TextIndex(const std::vector<VocabularyPiece>& pieces)
      : pieces_(pieces), slots_(std::bit_ceil(std::max<size_t>(16, pieces.size() * 2)), kEmpty) {}
  /// False when the text is there already.
  bool insert(uint32_t piece) {
    size_t slot = 0;
    if (locate(pieces_[piece].text, slot)) return false;
    slots_[slot] = piece;
    return true;
  }
  /// -1 when no piece has the text.
  int32_t find(std::string_view text) const {
    size_t slot = 0;
    return locate(text, slot) ? pieces_[slots_[slot]].id : -1;
  }

 private:
  static constexpr uint32_t kEmpty = ~0u;
  bool locate(std::string_view text, size_t& slot) const {
    slot = XXH3_64bits(text.data(), text.size()) & (slots_.size() - 1);
    for (; slots_[slot] != kEmpty; slot = (slot + 1) & (slots_.size() - 1)) {
      if (pieces_[slots_[slot]].text == text) return true;
    }
    return false;
  }

  const std::vector<VocabularyPiece>& pieces_;
  std::vector<uint32_t> slots_;
};

// How many times longer a step can make a text, at most.
double growth(const TextPattern& pattern, const std::string& content) {
  const auto length = static_cast<double>(content.size());
  // A regular expression may match between any two characters.
  return pattern.is_regex || pattern.text.empty()
             ? length + 1
             : std::max(1.0, length / static_cast<double>(pattern.text.size()));
}

// Steps that replace can double a text again and again: forty of them would fill any memory.
void check_growth(const TokenizerDescription& description) {
  constexpr double kMost = 4096;
  double factor = 1;
  for (const NormalizerStep& step : description.normalizer) {
    if (step.kind == NormalizerKind::replace) factor *= growth(step.pattern, step.content);
    if (step.kind == NormalizerKind::prepend || step.kind == NormalizerKind::append)
      factor *= 1 + static_cast<double>(step.content.size());
    if (step.kind == NormalizerKind::byte_level) factor *= 2;
    check_input(factor <= kMost, "{}: the normalizer could make a text more than {} times longer",
                description.name, kMost);
  }
  factor = 1;
  for (const DecoderStep& step : description.decoder) {
    if (step.kind == DecoderKind::replace) factor *= growth(step.pattern, step.content);
    check_input(factor <= kMost, "{}: the decoder could make a text more than {} times longer",
                description.name, kMost);
  }
}

class Builder {
 public:
  explicit Builder(TokenizerDescription description)
      : out_(std::make_unique<Tokenizer::Implementation>()),
        description_(std::move(description)),
        step_(description_.model),
        index_(step_.pieces) {}

  std::unique_ptr<Tokenizer::Implementation> build() {
    check_growth(description_);
    out_->byte_level = is_byte_level();
    make_pieces();
    if (out_->byte_level && !bytes_suffice()) {
      out_->byte_level = false;
      make_pieces();
    }
    mark_added_tokens();
    out_->normalizer = Normalizer(description_.normalizer);
    out_->pre_tokenizer = PreTokenizer(description_.pre_tokenizer, out_->byte_level);
    out_->decoder = Decoder(description_.decoder);
    make_model();
    make_affixes();
    make_added_token_finder();
    out_->pre_tokenizer.add_words_of(*out_->model);
    if (out_->normalizer.can_cut()) {
      const AtCut at_cut = out_->pre_tokenizer.at_cut(out_->normalizer.space());
      if (at_cut == AtCut::splits_at_spaces) out_->cuts = Cuts::spaces;
      if (at_cut == AtCut::splits)
        out_->cuts = out_->normalizer.empty() ? Cuts::spaces_and_lines : Cuts::spaces;
    }
    // The texts belong to the reader.
    for (VocabularyPiece& piece : step_.pieces) piece.text = {};
    out_->piece_info = std::move(step_.pieces);
    step_.pieces.clear();
    step_.merges.clear();
    out_->description = std::move(description_);
    return std::move(out_);
  }

 private:
  // Ids below this one may be sparse.
  static constexpr int64_t kSparseIds = 1 << 20;

  // The model may work on bytes when the last step spells bytes and nothing looks at how they are spelled.
  bool is_byte_level() const {
    const auto& steps = description_.pre_tokenizer;
    if (step_.kind != ModelKind::bpe || steps.empty() || steps.back().kind != PreTokenizerKind::byte_level)
      return false;
    if (!step_.continuing_prefix.empty() || !step_.end_of_word_suffix.empty()) return false;
    if (steps.size() > 1 && steps.back().add_prefix_space) return false;
    return std::none_of(steps.begin(), steps.end() - 1, [](const PreTokenizerStep& step) {
      return step.kind == PreTokenizerKind::byte_level || step.kind == PreTokenizerKind::metaspace;
    });
  }
  bool bytes_suffice() const {
    const auto found = std::count_if(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
    return found == 256 || (found > 0 && !step_.unknown_token && !step_.byte_fallback);
  }

  std::string where(const VocabularyPiece& piece) const {
    return fmt::format("{}['{}']", step_.vocabulary_element, piece.text);
  }

  void make_pieces() {
    int64_t largest = -1;
    size_t bytes = 0;
    for (const VocabularyPiece& piece : step_.pieces) {
      largest = std::max<int64_t>(largest, piece.id);
      bytes += piece.text.size();
    }
    for (const AddedToken& token : description_.added_tokens) largest = std::max<int64_t>(largest, token.id);
    // Tables have a place for every id, so that a few tokens with huge ids would take memory without end.
    const size_t tokens = step_.pieces.size() + description_.added_tokens.size();
    check_input(largest < kSparseIds + 8 * static_cast<int64_t>(tokens),
                "{}: the largest id, {}, is absurd for {} tokens", step_.vocabulary_element, largest, tokens);
    out_->pieces = PieceTable(largest + 1);
    out_->pieces.reserve(bytes);
    byte_ids_.fill(-1);
    const bool unigram = step_.kind == ModelKind::unigram || step_.kind == ModelKind::scored_bpe;
    std::optional<std::string> bytes_of;
    for (const VocabularyPiece& piece : step_.pieces) {
      if (out_->pieces.has(piece.id)) fail_input("{}: id {} is given twice", where(piece), piece.id);
      if (piece.text.empty() && !unigram) fail_input("{}: an empty piece", where(piece));
      if (step_.pieces_are_bytes) {
        bytes_of = piece.text;
      } else {
        bytes_of = out_->byte_level ? unspell_bytes(piece.text) : std::nullopt;
      }
      // A piece outside the byte alphabet cannot come from the merges; it stands for its own text.
      out_->pieces.set(piece.id, bytes_of ? std::string_view(*bytes_of) : piece.text);
      if (out_->byte_level && !bytes_of) continue;
      if (out_->byte_level && bytes_of->size() == 1)
        byte_ids_[static_cast<unsigned char>((*bytes_of)[0])] = piece.id;
      if (!unigram) out_->pieces.index(piece.id);
    }
    // Lists may give a text twice; the last one counts.
    if (unigram) {
      for (auto piece = step_.pieces.rbegin(); piece != step_.pieces.rend(); ++piece)
        if (!piece->text.empty()) out_->pieces.index(piece->id);
    }
    if (out_->byte_level && !step_.pieces_are_bytes && !indexed_) {
      indexed_ = true;
      for (uint32_t i = 0; i < step_.pieces.size(); ++i) {
        if (!index_.insert(i)) fail_input("{}: the piece is given twice", where(step_.pieces[i]));
      }
    }
  }

  // The id of a piece by its spelling.
  int32_t id_of(std::string_view text) const {
    return out_->byte_level && !step_.pieces_are_bytes ? index_.find(text) : out_->pieces.find(text);
  }

  void mark_added_tokens() {
    const auto size = static_cast<size_t>(out_->pieces.size());
    out_->special.assign(size, false);
    out_->added.assign(size, false);
    for (const AddedToken& token : description_.added_tokens) {
      const auto element = [&] { return description_.name + ".added_tokens"; };
      if (!out_->added_by_content.emplace(token.content, token.id).second)
        fail_input("{}: '{}' is given twice", element(), token.content);
      const int32_t piece = id_of(token.content);
      if (piece >= 0 && piece != token.id) {
        fail_input("{}: '{}' has id {}, but {} in the vocabulary", element(), token.content, token.id, piece);
      }
      if (piece < 0) {
        if (out_->pieces.has(token.id)) {
          fail_input("{}: '{}' has id {}, which belongs to another piece", element(), token.content,
                     token.id);
        }
        out_->pieces.set(token.id, token.content);
      } else if (out_->byte_level && out_->pieces.bytes(piece) != token.content) {
        fail_input("{}['{}']: the piece is also an added token, so that its id could mean either text",
                   step_.vocabulary_element, token.content);
      }
      out_->special[static_cast<size_t>(token.id)] = token.special;
      out_->added[static_cast<size_t>(token.id)] = true;
    }
  }

  int32_t unknown_id() const {
    if (step_.unknown_id) return static_cast<int32_t>(*step_.unknown_id);
    if (!step_.unknown_token || out_->byte_level) return -1;
    const int32_t id = out_->pieces.find(*step_.unknown_token);
    check_input(id >= 0 || step_.kind != ModelKind::bpe, "{}: '{}' is not in the vocabulary",
                step_.unknown_element, *step_.unknown_token);
    return id;
  }

  void make_model() {
    const ModelParts parts{step_, out_->pieces, unknown_id()};
    switch (step_.kind) {
      case ModelKind::bpe: {
        MergeTable merges = make_merges();
        if (!out_->byte_level) {
          check_input(!step_.pieces.empty(), "{}: no pieces, so no text could be encoded",
                      step_.vocabulary_element);
          out_->model = std::make_unique<CharacterBpe>(parts, std::move(merges));
          return;
        }
        auto model = std::make_unique<BpeModel>(out_->pieces);
        model->byte_ids = byte_ids_;
        model->merges = std::move(merges);
        model->ignore_merges = step_.ignore_merges;
        out_->model = std::move(model);
        return;
      }
      case ModelKind::scored_bpe:
        out_->model = make_scored_bpe(parts);
        return;
      case ModelKind::unigram:
        check_input(!step_.pieces.empty(), "{}: no pieces, so no text could be encoded",
                    step_.vocabulary_element);
        out_->model = make_unigram(parts);
        return;
      case ModelKind::word_piece:
        out_->model = make_word_piece(parts);
        return;
      case ModelKind::word_level:
        out_->model = make_word_level(parts);
        return;
    }
  }

  MergeTable make_merges() {
    if (step_.merges_by_pieces) return make_merges_by_pieces();
    MergeTable table(step_.merges.size());
    out_->merges.reserve(step_.merges.size());
    std::string joined;
    for (const auto& [left, right] : step_.merges) {
      const auto find = [&](std::string_view piece) {
        const int32_t id = id_of(piece);
        if (id < 0)
          fail_input("{}[{}]: '{}' is not in the vocabulary", step_.merges_element, out_->merges.size(),
                     piece);
        return id;
      };
      // The right side's own prefix goes when it is joined.
      const size_t prefix = std::min(step_.continuing_prefix.size(), right.size());
      joined.assign(left).append(right.substr(prefix));
      const int32_t left_id = find(left), right_id = find(right);
      table.insert(left_id, right_id, {static_cast<uint32_t>(out_->merges.size()), find(joined)});
      out_->merges.emplace_back(left_id, right_id);
    }
    return table;
  }

  MergeTable make_merges_by_pieces() {
    MergeTable table(step_.pieces.size() * 2);
    std::vector<const VocabularyPiece*> by_rank;
    for (const VocabularyPiece& piece : step_.pieces) by_rank.push_back(&piece);
    std::sort(by_rank.begin(), by_rank.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
    for (const VocabularyPiece* piece : by_rank) {
      const std::string_view text = piece->text;
      for (size_t cut = 1; cut < text.size(); ++cut) {
        const int32_t left = out_->pieces.find(text.substr(0, cut));
        if (left < 0) continue;
        const int32_t right = out_->pieces.find(text.substr(cut));
        if (right < 0) continue;
        table.insert(left, right, {static_cast<uint32_t>(piece->id), piece->id});
        out_->merges.emplace_back(left, right);
      }
    }
    return table;
  }

  void make_affixes() {
    for (const PostProcessorStep& step : description_.post_processor) {
      std::vector<int32_t> before;
      const auto add = [&](const std::vector<TemplateToken>& tokens, std::vector<int32_t>& ids) {
        for (const TemplateToken& token : tokens) {
          for (const int32_t id : token.ids) {
            check_input(out_->pieces.has(id), "{}: '{}' has id {}, which no token has", step.element,
                        token.name, id);
            ids.push_back(id);
          }
        }
      };
      add(step.before, before);
      out_->prefix_ids.insert(out_->prefix_ids.begin(), before.begin(), before.end());
      add(step.after, out_->suffix_ids);
    }
  }

  // Tokens that are looked for in normalised text are normalised themselves.
  void make_added_token_finder() {
    std::vector<AddedToken> tokens = description_.added_tokens;
    for (AddedToken& token : tokens) {
      if (!token.normalized || out_->normalizer.empty() || !is_valid_utf8(token.content)) continue;
      AlignedText text, scratch;
      text.assign(token.content, false);
      out_->normalizer.apply(text, scratch, {});
      if (text.bytes != token.content) out_->added_as_normalized[token.id] = text.bytes;
      token.content = text.bytes;
    }
    std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
    out_->added_token_finder = AddedTokenFinder(tokens);
  }

  std::unique_ptr<Tokenizer::Implementation> out_;
  TokenizerDescription description_;
  ModelStep& step_;
  TextIndex index_;
  bool indexed_ = false;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace

std::unique_ptr<Tokenizer::Implementation> build_tokenizer(TokenizerDescription description) {
  return Builder(std::move(description)).build();
}

}  // namespace megalith
