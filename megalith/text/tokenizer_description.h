// What a tokenizer is made of, as plain data: the readers of tokenizer.json, SentencePiece models, tiktoken
// files and GGUF fill it, Tokenizer builds its parts from it, and write_tokenizer_json() says it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/text/added_tokens.h"

namespace megalith {

/// Text to look for: as it is, or as a regular expression.
struct TextPattern {
  std::string text;
  bool is_regex = false;
};

enum class NormalizerKind {
  nfc,
  nfd,
  nfkc,
  nfkd,
  lowercase,
  strip,
  strip_accents,
  replace,
  prepend,
  append,
  bert,
  nmt,
  precompiled,
  byte_level,
  /// SentencePiece's own: its character map (longest match, where `precompiled` takes the shortest) and its
  /// rules of white space in one pass.
  sentencepiece,
};

/// Sequences are written out flat: steps of sequences in sequences follow each other.
struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::nfc;
  /// Names the step in errors.
  std::string element = {};
  /// replace
  TextPattern pattern = {};
  /// replace, prepend, append
  std::string content = {};
  /// strip
  bool left = true;
  bool right = true;
  /// bert; without a value accents are stripped when letters are lowered.
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents = std::nullopt;
  bool lowercase = true;
  /// precompiled, sentencepiece: the binary character map; may be empty.
  std::string charsmap = {};
  /// sentencepiece
  bool add_dummy_prefix = false;
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = false;
  bool whitespace_as_suffix = false;
  /// sentencepiece: texts that are taken as they are.
  std::vector<std::string> protected_texts = {};
};

/// What becomes of the matches of a split pattern.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

enum class PreTokenizerKind {
  split,
  byte_level,
  metaspace,
  digits,
  punctuation,
  whitespace,
  whitespace_split,
  bert,
  unicode_scripts,
  char_delimiter_split,
  fixed_length,
};

enum class PrependScheme { always, first, never };

struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::split;
  std::string element = {};
  /// split
  TextPattern pattern = {};
  bool invert = false;
  /// split, punctuation
  SplitBehavior behavior = SplitBehavior::isolated;
  /// byte_level
  bool add_prefix_space = true;
  bool use_regex = true;
  /// metaspace: the character that stands for a space; char_delimiter_split: the delimiter.
  std::string character = "\xE2\x96\x81";
  PrependScheme prepend = PrependScheme::always;
  bool split = true;
  /// digits
  bool individual_digits = false;
  /// fixed_length, in characters
  int64_t length = 5;
};

enum class ModelKind {
  /// Pairs joined by the rank of their merge.
  bpe,
  /// Pairs joined by the score of the piece that they give (SentencePiece, llama.cpp).
  scored_bpe,
  unigram,
  word_piece,
  word_level,
};

enum class PieceKind : uint8_t { normal, unknown, control, user_defined, unused, byte };

/// A piece of the vocabulary. Text points into what the reader read.
struct VocabularyPiece {
  std::string_view text;
  int32_t id = 0;
  float score = 0;         // scored_bpe, and unigram as SentencePiece computes it
  double exact_score = 0;  // unigram of a tokenizer.json
  PieceKind kind = PieceKind::normal;
};

struct ModelStep {
  ModelKind kind = ModelKind::bpe;
  /// Names the vocabulary, the merges and the unknown token in errors.
  std::string vocabulary_element = {};
  std::string merges_element = {};
  std::string unknown_element = {};
  std::vector<VocabularyPiece> pieces = {};
  /// bpe: the texts of both sides, in the order of their ranks.
  std::vector<std::pair<std::string_view, std::string_view>> merges = {};
  /// bpe: texts are bytes, not spelled in the byte alphabet.
  bool pieces_are_bytes = false;
  /// bpe: there are no merges; two neighbours are joined when their text is a piece, whose id is the rank.
  bool merges_by_pieces = false;
  /// The token of what cannot be encoded: its text, or for unigram its id.
  std::optional<std::string> unknown_token = std::nullopt;
  std::optional<int64_t> unknown_id = std::nullopt;
  /// Neighbouring unknown characters become one token.
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::string continuing_prefix = {};
  std::string end_of_word_suffix = {};
  /// word_piece
  int64_t maximum_word_characters = 100;
  /// scored_bpe and unigram: exactly what SentencePiece computes, in its precision, over the whole text.
  bool as_sentencepiece = false;
};

enum class PostProcessorKind { template_, byte_level, bert, roberta };

/// A token that stands before or after a text.
struct TemplateToken {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
  int64_t type_id = 0;
};

struct PostProcessorStep {
  PostProcessorKind kind = PostProcessorKind::template_;
  std::string element = {};
  std::vector<TemplateToken> before = {};
  std::vector<TemplateToken> after = {};
  /// byte_level, roberta
  bool trim_offsets = true;
  bool add_prefix_space = true;
};

enum class DecoderKind {
  byte_level,
  word_piece,
  metaspace,
  replace,
  byte_fallback,
  fuse,
  strip,
  bpe,
  ctc,
};

struct DecoderStep {
  DecoderKind kind = DecoderKind::byte_level;
  std::string element = {};
  /// word_piece
  std::string prefix = "##";
  /// word_piece, ctc
  bool cleanup = true;
  /// metaspace, strip
  std::string character = "\xE2\x96\x81";
  PrependScheme prepend = PrependScheme::always;
  /// replace
  TextPattern pattern = {};
  std::string content = {};
  /// strip
  int64_t start = 0;
  int64_t stop = 0;
  /// bpe
  std::string suffix = "</w>";
  /// ctc
  std::string pad_token = "<pad>";
  std::string word_delimiter = "|";
};

/// How a tokenizer.json wants texts to be cut and filled up.
struct Truncation {
  int64_t maximum_length = 512;
  bool from_left = false;
};
struct Padding {
  /// Without one, a text alone is as long as the longest of its batch.
  std::optional<int64_t> fixed_length = std::nullopt;
  std::optional<int64_t> multiple_of = std::nullopt;
  bool on_left = false;
  int32_t id = 0;
};

struct TokenizerDescription {
  /// The file, for errors.
  std::string name;
  std::vector<AddedToken> added_tokens = {};
  std::vector<NormalizerStep> normalizer = {};
  std::vector<PreTokenizerStep> pre_tokenizer = {};
  ModelStep model = {};
  std::vector<PostProcessorStep> post_processor = {};
  /// Without a decoder the tokens are joined by spaces.
  std::vector<DecoderStep> decoder = {};
  std::optional<Truncation> truncation = std::nullopt;
  std::optional<Padding> padding = std::nullopt;
};

}  // namespace megalith
