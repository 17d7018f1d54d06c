// Unigram: the split of a piece whose tokens have the largest sum of scores (Viterbi).
#include <algorithm>
#include <limits>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/bpe_model.h"
#include "megalith/text/model.h"
#include "megalith/text/piece_trie.h"

namespace megalith {

namespace {

// What an unknown character costs below the worst piece.
constexpr double kUnknownPenalty = 10.0;

// Sums are kept in `Score`: where several ways are nearly as good, or a text is long, rounding decides.
template <class Score>
class Unigram final : public Model {
 public:
  explicit Unigram(const ModelParts& parts)
      : pieces_(parts.pieces),
        unknown_(parts.pieces, parts.step.byte_fallback, parts.unknown_id),
        fuse_(parts.step.fuse_unknown),
        as_sentencepiece_(parts.step.as_sentencepiece) {
    size_t bytes = 0;
    for (const VocabularyPiece& piece : parts.step.pieces) bytes += piece.text.size();
    trie_ = PieceTrie(bytes);
    scores_.assign(static_cast<size_t>(parts.pieces.size()), 0);
    Score lowest = std::numeric_limits<Score>::max(), highest = std::numeric_limits<Score>::lowest();
    for (const VocabularyPiece& piece : parts.step.pieces) {
      const Score score = score_of(piece);
      // SentencePiece takes the worst and best of normal pieces only.
      if (!as_sentencepiece_ || piece.kind == PieceKind::normal) {
        lowest = std::min(lowest, score);
        highest = std::max(highest, score);
      }
      scores_[static_cast<size_t>(piece.id)] = score;
      const bool findable =
          !as_sentencepiece_ || piece.kind == PieceKind::normal || piece.kind == PieceKind::user_defined;
      if (findable && !piece.text.empty()) trie_.insert(piece.text, piece.id);
    }
    for (const VocabularyPiece& piece : parts.step.pieces) {
      if (!as_sentencepiece_ || piece.kind != PieceKind::user_defined) continue;
      scores_[static_cast<size_t>(piece.id)] =
          static_cast<Score>(static_cast<Score>(piece.text.size()) * highest - 0.1);
    }
    unknown_score_ = lowest - static_cast<Score>(kUnknownPenalty);
  }

  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
              std::vector<TokenRange>* ranges) const override {
    auto& best = best_of(scratch);
    best.assign(piece.size() + 1, {Score(0), -1, -1});
    for (size_t at = 0; at < piece.size();) {
      const Score here = best[at].score;
      size_t next = at;
      next_code_point(piece, next);
      bool single = false;
      uint32_t node = 0;
      for (size_t end = at; end < piece.size();) {
        node = trie_.child(node, piece[end]);
        if (node == 0) break;
        ++end;
        const int32_t id = trie_.value(node);
        if (id < 0) continue;
        offer(best[end], scores_[static_cast<size_t>(id)] + here, at, id);
        single = single || end == next;
      }
      if (!single) offer(best[next], unknown_score_ + here, at, unknown_.unknown_id());
      at = next;
    }
    // Backwards: the tokens, neighbouring unknown ones as one.
    auto& found = scratch.symbols;
    found.clear();
    for (size_t end = piece.size(); end > 0;) {
      const auto begin = static_cast<size_t>(best[end].from);
      const int32_t id = best[end].id;
      const auto length = static_cast<uint32_t>(end - begin);
      if (fuse_ && id == unknown_.unknown_id() && !found.empty() && found.back().id == id) {
        found.back().begin = static_cast<uint32_t>(begin);
        found.back().length += length;
      } else {
        found.push_back({static_cast<uint32_t>(begin), length, id, false});
      }
      end = begin;
    }
    for (auto symbol = found.rbegin(); symbol != found.rend(); ++symbol) {
      write(piece.substr(symbol->begin, symbol->length), symbol->begin, symbol->id, ids, ranges);
    }
  }

  void encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const override {
    unknown_.encode_invalid(bytes, scratch, ids, ranges);
  }

 private:
  using Best = ModelScratch::Best<Score>;

  static Score score_of(const VocabularyPiece& piece) {
    if constexpr (std::is_same_v<Score, float>) return piece.score;
    return static_cast<Score>(piece.exact_score);
  }
  static std::vector<Best>& best_of(ModelScratch& scratch) {
    if constexpr (std::is_same_v<Score, float>) {
      return scratch.best_float;
    } else {
      return scratch.best;
    }
  }
  static void offer(Best& target, Score score, size_t from, int32_t id) {
    if (target.from < 0 || score > target.score) target = {score, static_cast<int64_t>(from), id};
  }

  void write(std::string_view text, uint32_t begin, int32_t id, std::vector<int32_t>& ids,
             std::vector<TokenRange>* ranges) const {
    const auto end = static_cast<uint32_t>(begin + text.size());
    const auto add = [&](int32_t token) {
      ids.push_back(token);
      if (ranges != nullptr) ranges->push_back({begin, end});
    };
    if (id == unknown_.unknown_id()) {
      // The tokenizers library looks the text up again: several unknown characters may be a piece.
      const int32_t piece = as_sentencepiece_ ? -1 : pieces_.find(text);
      if (piece >= 0) return add(piece);
      if (unknown_.has_bytes(text)) {
        for (const char byte : text) add(unknown_.byte(byte));
        return;
      }
      check_input(id >= 0, "'{}' has no token, and the vocabulary has none for unknown text", text);
    }
    add(id);
  }

  const PieceTable& pieces_;
  UnknownText unknown_;
  bool fuse_;
  bool as_sentencepiece_;
  PieceTrie trie_;
  std::vector<Score> scores_;  // By id.
  Score unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<Model> make_unigram(const ModelParts& parts) {
  if (parts.step.as_sentencepiece) return std::make_unique<Unigram<float>>(parts);
  return std::make_unique<Unigram<double>>(parts);
}

}  // namespace megalith
