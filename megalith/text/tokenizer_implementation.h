// The parts of a tokenizer, and how they are built from a description.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "megalith/text/added_tokens.h"
#include "megalith/text/bpe_model.h"
#include "megalith/text/decoder.h"
#include "megalith/text/encode_scratch.h"
#include "megalith/text/model.h"
#include "megalith/text/normalizer.h"
#include "megalith/text/pre_tokenizer.h"
#include "megalith/text/stretch.h"
#include "megalith/text/tokenizer.h"
#include "megalith/text/tokenizer_description.h"

namespace megalith {

/// Texts are split and encoded in stretches of about this size, so that the bounds of pieces stay in the
/// cache.
inline constexpr size_t kStretchBytes = 64 * 1024;

struct Tokenizer::Implementation {
  /// The text of a tokenizer.json; written when it is first asked for unless the tokenizer was read from one.
  mutable std::string json;
  mutable std::once_flag json_written;
  /// What the tokenizer was made from, without the vocabulary, which `pieces`, `piece_info` and `merges`
  /// hold.
  TokenizerDescription description;
  std::vector<std::pair<int32_t, int32_t>> merges;
  std::vector<VocabularyPiece> piece_info;  // Without texts.

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  Decoder decoder;
  /// Whether the model works on bytes, and pieces are the bytes that tokenizer.json spells.
  bool byte_level = false;
  PieceTable pieces;
  Cuts cuts = Cuts::none;

  AddedTokenFinder added_token_finder{{}};
  std::map<std::string, int32_t, std::less<>> added_by_content;
  std::vector<bool> added;  // By id.
  /// Added tokens that are looked for behind the normalizer decode to what it makes of them.
  std::map<int32_t, std::string> added_as_normalized;
  std::vector<bool> special;  // By id.
  /// What the post-processor puts before and after a text.
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;

  mutable ScratchPool scratch_pool;
  mutable std::once_flag dropped_bytes_told;

  /// Appends the ids of a part of a text that holds no raw added token. `place` is that of the part.
  void encode_ids(std::string_view part, PartPlace place, bool parse_special, EncodeScratch& scratch,
                  std::vector<int32_t>& ids) const;
  /// The same with bytes, counted from `offset` before the part.
  void encode_spans(std::string_view part, PartPlace place, bool parse_special, EncodeScratch& scratch,
                    size_t offset, std::vector<TokenSpan>& spans) const;

  /// What encode_ids() and encode_spans() do: `on_token(id, begin, end)` is told of each token and its bytes
  /// in the part when `Offsets`; without, ids are only appended.
  template <bool Offsets, class OnToken>
  void encode_part(std::string_view part, PartPlace place, bool parse_special, EncodeScratch& scratch,
                   std::vector<int32_t>& ids, const OnToken& on_token) const;
  template <bool Offsets, class OnToken>
  void encode_valid(std::string_view text, size_t base, PartPlace place, bool parse_special,
                    EncodeScratch& scratch, std::vector<int32_t>& ids, const OnToken& on_token) const;
  /// The pieces of `text`, whose ends are in `scratch.ends`. `origin(begin, end)` gives the bytes of the
  /// part.
  template <bool Offsets, class Origin, class OnToken>
  void encode_pieces(std::string_view text, EncodeScratch& scratch, std::vector<int32_t>& ids,
                     const Origin& origin, const OnToken& on_token) const;

  /// The added tokens that are looked for in raw text, and what lies between them.
  void split_added(std::string_view text, bool parse_special,
                   std::vector<AddedTokenFinder::Part>& parts) const;
  /// Cuts, adds what stands behind a text, and pads. Ids from `begin` on are the text's, from `text_begin` on
  /// without what stands before it.
  void finish_ids(const EncodeOptions& options, size_t begin, size_t text_begin,
                  std::vector<int32_t>& ids) const;
  /// Takes white space out of the offsets where the post-processor says so.
  void trim_offsets(std::string_view text, std::vector<TokenSpan>& spans) const;
  void decode_token(DecodeStream& stream, int32_t id, std::string& text) const;

  /// The text of a token as the vocabulary spells it.
  std::string spelling(int32_t id) const;
};

/// Builds the parts from JSON text. Throws InputError naming the file and the element.
std::unique_ptr<Tokenizer::Implementation> read_tokenizer_json(std::string_view json, std::string_view name);

/// Builds the parts. Throws InputError naming the element for a vocabulary that contradicts itself.
std::unique_ptr<Tokenizer::Implementation> build_tokenizer(TokenizerDescription description);

}  // namespace megalith
