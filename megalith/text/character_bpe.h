// Byte-pair encoding over characters: by the ranks of merges (tokenizer.json), or by the scores of what they
// give (SentencePiece, llama.cpp).
#pragma once

#include <array>
#include <string>

#include "megalith/text/bpe_model.h"
#include "megalith/text/model.h"
#include "megalith/text/piece_trie.h"
#include "megalith/text/pre_tokenizer.h"

namespace megalith {

/// Cuts where no piece holds what stands on both sides: nothing can ever be joined over such a place. It cuts
/// before spaces (as the vocabulary spells them) and ASCII characters that are pieces themselves, so that no
/// run of unknown characters is cut.
class WordSplitter final : public Splitter {
 public:
  explicit WordSplitter(const PieceTable& pieces);
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override;
  AtCut at_cut() const override { return splits_between_letters_ ? AtCut::splits_at_spaces : AtCut::unknown; }
  /// How the vocabulary spells a space; empty when it has none.
  std::string_view space() const override { return space_; }

 private:
  static constexpr size_t kSpace =
      128;  // Of the characters that may follow: ASCII, and the space's spelling.

  std::string space_;
  // By the byte before and the character behind.
  std::array<std::array<bool, kSpace + 1>, 256> joins_{};
  bool splits_between_letters_ = true;
};

class CharacterBpe final : public Model {
 public:
  /// `merges` are pairs of ids of `parts.pieces`.
  CharacterBpe(const ModelParts& parts, MergeTable merges);
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
              std::vector<TokenRange>* ranges) const override;
  void encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const override {
    unknown_.encode_invalid(bytes, scratch, ids, ranges);
  }
  const Splitter* words() const override { return words_ ? &*words_ : nullptr; }

 private:
  int32_t id_of_character(std::string_view character, bool first, bool last) const;

  const PieceTable& pieces_;
  MergeTable merges_;
  UnknownText unknown_;
  std::string prefix_, suffix_;
  bool byte_fallback_, fuse_, ignore_merges_;
  std::array<int32_t, 128> ascii_;
  std::optional<WordSplitter> words_;
};

}  // namespace megalith
