#include "megalith/text/character_bpe.h"

#include <bit>
#include <unordered_map>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/symbol_merger.h"

namespace megalith {

namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

void check_length(std::string_view piece) {
  check_input(piece.size() < (uint64_t{1} << 31), "a text of {} bytes without a place to cut is too long",
              piece.size());
}

void append(int32_t id, uint32_t begin, uint32_t end, std::vector<int32_t>& ids,
            std::vector<TokenRange>* ranges) {
  ids.push_back(id);
  if (ranges != nullptr) ranges->push_back({begin, end});
}

}  // namespace

WordSplitter::WordSplitter(const PieceTable& pieces) {
  for (const std::string_view space : {kSpaceSymbol, std::string_view(" ")}) {
    if (pieces.find(space) >= 0) {
      space_ = space;
      break;
    }
  }
  for (size_t c = 0; c < 128; ++c) {
    const char byte = static_cast<char>(c);
    if (pieces.find(std::string_view(&byte, 1)) >= 0) continue;
    for (auto& row : joins_) row[c] = true;
  }
  for (auto& row : joins_) row[kSpace] = space_.empty();
  for (int64_t id = 0; id < pieces.size(); ++id) {
    if (!pieces.has(static_cast<int32_t>(id))) continue;
    const std::string_view text = pieces.bytes(static_cast<int32_t>(id));
    for (size_t at = 1; at < text.size(); ++at) {
      auto& row = joins_[static_cast<unsigned char>(text[at - 1])];
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte < 0x80) row[byte] = true;
      if (!space_.empty() && text[at] == space_[0] && text.substr(at).starts_with(space_)) row[kSpace] = true;
    }
  }
  const size_t space_class = space_ == " " ? size_t{' '} : kSpace;
  for (size_t letter = 'A'; letter <= 'z'; ++letter) {
    if (joins_[letter][space_class]) splits_between_letters_ = false;
  }
  if (space_.empty()) splits_between_letters_ = false;
}

void WordSplitter::split(std::string_view text, size_t base, std::vector<size_t>& ends) const {
  for (size_t at = 1; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto& row = joins_[static_cast<unsigned char>(text[at - 1])];
    const bool cuts = byte < 0x80 ? !row[byte]
                                  : byte == static_cast<unsigned char>(space_.empty() ? 0 : space_[0]) &&
                                        !row[kSpace] && text.substr(at).starts_with(space_);
    if (cuts) ends.push_back(base + at);
  }
  ends.push_back(base + text.size());
}

CharacterBpe::CharacterBpe(const ModelParts& parts, MergeTable merges)
    : pieces_(parts.pieces),
      merges_(std::move(merges)),
      unknown_(parts.pieces, parts.step.byte_fallback, parts.unknown_id),
      prefix_(parts.step.continuing_prefix),
      suffix_(parts.step.end_of_word_suffix),
      byte_fallback_(parts.step.byte_fallback),
      fuse_(parts.step.fuse_unknown),
      ignore_merges_(parts.step.ignore_merges) {
  for (size_t c = 0; c < 128; ++c) {
    const char byte = static_cast<char>(c);
    ascii_[c] = pieces_.find(std::string_view(&byte, 1));
  }
  // What is done to the first or last character of a word, or to a word that is a piece, needs whole words.
  // So do characters that are left out, because the tokenizers library counts offsets as if they had not been
  // there.
  const bool drops = unknown_.unknown_id() < 0 && !byte_fallback_;
  if (prefix_.empty() && suffix_.empty() && !ignore_merges_ && !drops) {
    words_.emplace(pieces_);
  }
}

int32_t CharacterBpe::id_of_character(std::string_view character, bool first, bool last) const {
  const bool with_prefix = !first && !prefix_.empty(), with_suffix = last && !suffix_.empty();
  if (!with_prefix && !with_suffix) {
    const auto byte = static_cast<unsigned char>(character[0]);
    return byte < 0x80 ? ascii_[byte] : pieces_.find(character);
  }
  std::string text = with_prefix ? prefix_ : std::string();
  text.append(character);
  if (with_suffix) text.append(suffix_);
  return pieces_.find(text);
}

void CharacterBpe::encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
                          std::vector<TokenRange>* ranges) const {
  check_length(piece);
  if (ignore_merges_) {
    const int32_t whole = pieces_.find(piece);
    if (whole >= 0) return append(whole, 0, static_cast<uint32_t>(piece.size()), ids, ranges);
  }
  auto& symbols = scratch.symbols;
  symbols.clear();
  uint32_t unknown_length = 0;  // Of an unknown token that has not been written yet.
  const auto add = [&](int32_t id, size_t length) {
    symbols.push_back({0, static_cast<uint32_t>(length), id, false});
  };
  const auto add_unknown = [&] {
    if (unknown_length > 0) add(unknown_.unknown_id(), unknown_length);
    unknown_length = 0;
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    next_code_point(piece, at);
    const std::string_view character = piece.substr(begin, at - begin);
    const int32_t id = id_of_character(character, begin == 0, at == piece.size());
    if (id >= 0) {
      add_unknown();
      add(id, character.size());
      continue;
    }
    if (byte_fallback_ && unknown_.has_bytes(character)) {
      // As in the tokenizers library, an unknown token before waits until a piece comes.
      for (const char byte : character) add(unknown_.byte(byte), 1);
      continue;
    }
    if (unknown_.unknown_id() < 0) {
      scratch.dropped_bytes += character.size();
      continue;
    }
    if (!fuse_) add_unknown();
    unknown_length += static_cast<uint32_t>(character.size());
  }
  add_unknown();
  merge_symbols(scratch, [&](const ModelScratch::Symbol& left, const ModelScratch::Symbol& right) {
    const Merge* merge = merges_.find(left.id, right.id);
    return merge == nullptr ? Merge{kNoMerge, -1} : *merge;
  });
  uint32_t at = 0;
  for (const ModelScratch::Symbol& symbol : symbols) {
    append(symbol.id, at, at + symbol.length, ids, ranges);
    at += symbol.length;
  }
}

namespace {

// SentencePiece's and llama.cpp's: any two neighbours whose text is a piece may be joined, the best score
// first.
class ScoredBpe final : public Model {
 public:
  explicit ScoredBpe(const ModelParts& parts)
      : pieces_(parts.pieces),
        unknown_(parts.pieces, parts.step.byte_fallback, parts.unknown_id),
        fuse_(parts.step.fuse_unknown),
        words_(parts.pieces) {
    ranks_.assign(static_cast<size_t>(pieces_.size()), kNoMerge);
    size_t frozen_bytes = 0;
    const auto is_frozen = [&](const VocabularyPiece& piece) {
      return parts.step.as_sentencepiece && piece.kind == PieceKind::user_defined;
    };
    for (const VocabularyPiece& piece : parts.step.pieces)
      frozen_bytes += is_frozen(piece) ? piece.text.size() : 0;
    frozen_ = PieceTrie(frozen_bytes);
    for (const VocabularyPiece& piece : parts.step.pieces) {
      const bool joins = !parts.step.as_sentencepiece || piece.kind == PieceKind::normal ||
                         piece.kind == PieceKind::user_defined || piece.kind == PieceKind::unused;
      if (joins) ranks_[static_cast<size_t>(piece.id)] = rank_of(piece.score);
      if (is_frozen(piece)) frozen_.insert(piece.text, piece.id);
      if (parts.step.as_sentencepiece && piece.kind == PieceKind::unused) unused_.push_back(piece.id);
    }
  }

  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
              std::vector<TokenRange>* ranges) const override {
    check_length(piece);
    auto& symbols = scratch.symbols;
    symbols.clear();
    for (size_t at = 0; at < piece.size();) {
      const size_t begin = at;
      const auto [length, frozen_id] = frozen_prefix(piece.substr(at));
      if (length > 0) {
        at += length;
      } else {
        next_code_point(piece, at);
      }
      symbols.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at - begin),
                         length > 0 ? frozen_id : kUnasked, length > 0});
    }
    std::unordered_map<std::string_view, size_t>
        made_of;  // Unused pieces, and the length of their left side.
    merge_symbols(scratch, [&](const ModelScratch::Symbol& left, const ModelScratch::Symbol& right) {
      if (left.frozen || right.frozen) return Merge{kNoMerge, -1};
      const std::string_view text = piece.substr(left.begin, left.length + right.length);
      const int32_t id = pieces_.find(text);
      if (id < 0) return Merge{kNoMerge, -1};
      const uint32_t rank = ranks_[static_cast<size_t>(id)];
      if (rank != kNoMerge && is_unused(id)) made_of[text] = left.length;
      return Merge{rank, id};
    });
    bool after_unknown = false;
    for (const ModelScratch::Symbol& symbol : symbols)
      write(piece, symbol, made_of, after_unknown, ids, ranges);
  }

  void encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const override {
    unknown_.encode_invalid(bytes, scratch, ids, ranges);
  }
  const Splitter* words() const override { return &words_; }

 private:
  static constexpr int32_t kUnasked = -2;

  // Higher scores first: the order of floats as the order of unsigned numbers, reversed.
  static uint32_t rank_of(float score) {
    const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
    return ~((bits >> 31) != 0 ? ~bits : bits | 0x80000000u);
  }
  bool is_unused(int32_t id) const {
    return !unused_.empty() && std::binary_search(unused_.begin(), unused_.end(), id);
  }
  std::pair<size_t, int32_t> frozen_prefix(std::string_view text) const {
    std::pair<size_t, int32_t> longest{0, -1};
    if (frozen_.empty()) return longest;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = frozen_.child(node, text[i]);
      if (node == 0) break;
      if (frozen_.value(node) >= 0) longest = {i + 1, frozen_.value(node)};
    }
    return longest;
  }
  void write(std::string_view piece, const ModelScratch::Symbol& symbol,
             const std::unordered_map<std::string_view, size_t>& made_of, bool& after_unknown,
             std::vector<int32_t>& ids, std::vector<TokenRange>* ranges) const {
    const std::string_view text = piece.substr(symbol.begin, symbol.length);
    const uint32_t end = symbol.begin + symbol.length;
    int32_t id = symbol.id;
    if (id == kUnasked) {
      id = pieces_.find(text);
      if (id >= 0 && ranks_[static_cast<size_t>(id)] == kNoMerge) id = -1;
    }
    if (id >= 0 && is_unused(id)) {
      const auto parts = made_of.find(text);
      if (parts != made_of.end()) {
        const auto left = static_cast<uint32_t>(parts->second);
        write(piece, {symbol.begin, left, kUnasked, false}, made_of, after_unknown, ids, ranges);
        write(piece, {symbol.begin + left, symbol.length - left, kUnasked, false}, made_of, after_unknown,
              ids, ranges);
        return;
      }
    }
    if (id >= 0) {
      after_unknown = false;
      return append(id, symbol.begin, end, ids, ranges);
    }
    if (unknown_.has_bytes(text)) {
      after_unknown = false;
      for (const char byte : text) append(unknown_.byte(byte), symbol.begin, end, ids, ranges);
      return;
    }
    check_input(unknown_.unknown_id() >= 0, "'{}' has no token, and the vocabulary has none for unknown text",
                text);
    if (after_unknown && fuse_) {
      if (ranges != nullptr) ranges->back().end = end;
    } else {
      append(unknown_.unknown_id(), symbol.begin, end, ids, ranges);
    }
    after_unknown = true;
  }

  const PieceTable& pieces_;
  UnknownText unknown_;
  bool fuse_;
  WordSplitter words_;
  std::vector<uint32_t> ranks_;  // By id.
  PieceTrie frozen_;
  std::vector<int32_t> unused_;  // Rising.
};

}  // namespace

std::unique_ptr<Model> make_scored_bpe(const ModelParts& parts) {
  return std::make_unique<ScoredBpe>(parts);
}

}  // namespace megalith
