// A tokenizer: text to ids and back, read from a Hugging Face tokenizer.json, a SentencePiece model or a
// tiktoken file, and written as a tokenizer.json.
//
// The pipeline is added tokens -> normalizer -> pre-tokenizer -> model -> post-processor, and backwards
// model -> decoder.
//
// Bytes that are not valid UTF-8 are kept: every run of bytes that cannot belong to a character is a piece of
// its own. With a byte-level model decode(encode(x)) == x for any bytes x (added tokens with lstrip or
// rstrip, which swallow white space, and normalizers excepted); with byte fallback the bytes come back too;
// other models have an unknown token for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A token and the part of the input that it stands for: offsets in bytes, and in characters (code points; a
/// token that covers part of a character's bytes covers that character). What a normalizer or a pre-tokenizer
/// has put into the text belongs to the character beside it.
struct TokenSpan {
  int32_t id = 0;
  uint64_t byte_begin = 0;
  uint64_t byte_end = 0;
  uint64_t character_begin = 0;
  uint64_t character_end = 0;
};

struct EncodeOptions {
  /// Whether the text of special tokens ("<|endoftext|>") becomes those tokens. Off for text from users and
  /// corpora. Added tokens that are not special are always matched.
  bool parse_special = false;
  /// Whether the tokens that the file's post-processor puts around a text (a BOS, for example) are added.
  bool add_special = false;
  /// Whether the text is cut, or filled up with padding, to the length that the file sets (if it does).
  bool truncate = false;
  bool pad = false;
  /// Cuts the text to so many tokens, those around it included, whatever the file sets; 0 does not.
  size_t max_tokens = 0;
};

struct TokenizerDescription;
class DecodeStream;

/// Copies share their parts, which never change.
class Tokenizer {
 public:
  /// Reads a tokenizer.json, a SentencePiece model (.model) or a tiktoken rank file (.tiktoken), as the
  /// file's content says. `pattern` is how a tiktoken file's texts are split ("gpt2", "cl100k", "o200k"),
  /// which it does not say; without one it is told from the number of ranks, or refused. Throws InputError
  /// naming the file and the element that is wrong or not supported.
  static Tokenizer load(const std::filesystem::path& path, std::string_view pattern = {});
  /// `name` stands for the file in error messages.
  static Tokenizer from_json(std::string_view json, std::string_view name = "tokenizer.json");

  /// Throws InputError naming the element for a vocabulary that contradicts itself.
  static Tokenizer from_description(TokenizerDescription description);

  /// The tokenizer.json text that this tokenizer was made from, unchanged; or one that says the same as the
  /// form it was made from.
  const std::string& to_json() const;
  /// Writes to_json() atomically. Throws Error when it cannot.
  void save(const std::filesystem::path& path) const;

  /// Ids of a text; safe to call from several threads. Never empty for a text that is not empty.
  std::vector<int32_t> encode(std::string_view text, bool parse_special = false) const;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  /// Appends to `ids`.
  void encode_append(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids) const;
  std::vector<TokenSpan> encode_with_offsets(std::string_view text, const EncodeOptions& options = {}) const;
  /// Encodes one big text on `threads` threads, with the result of encode(). Patterns without known safe
  /// places to cut (see Cuts) run on one thread.
  std::vector<int32_t> encode_parallel(std::string_view text, int threads,
                                       const EncodeOptions& options = {}) const;

  /// The text of the tokens. It need not be valid UTF-8 (see replace_invalid_utf8): bytes of a byte-level
  /// model and of byte fallback are given as they are. `skip_special` leaves special tokens out. Throws
  /// InputError for an id that no token has.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  /// The bytes that a token of a byte-level model stands for; else the token's text in the vocabulary
  /// ("##ing",
  /// "\u2581the"), and the literal text of an added token. Throws InputError for an unknown id.
  std::string_view token_bytes(int32_t id) const;

  /// One more than the largest id.
  int64_t vocab_size() const;
  bool has_id(int32_t id) const;
  /// The id of an added token by its text, or of a piece of the vocabulary by its bytes.
  std::optional<int32_t> id_of(std::string_view content) const;
  bool is_special(int32_t id) const;
  /// The end-of-document token: the first of "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>" that is an
  /// added token.
  std::optional<int32_t> end_of_document() const;
  /// The beginning-of-text token that the post-processor adds, if it adds one.
  std::optional<int32_t> beginning_of_text() const;

  struct Implementation;
  /// The parts, for those that write them in another form.
  const Implementation& implementation() const { return *implementation_; }

 private:
  friend class StreamingDecoder;
  explicit Tokenizer(std::unique_ptr<Implementation> implementation);
  std::shared_ptr<const Implementation> implementation_;
};

/// Decodes a stream of ids into text that never ends inside a character.
class StreamingDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  StreamingDecoder(StreamingDecoder&&) noexcept;
  StreamingDecoder& operator=(StreamingDecoder&&) noexcept;
  ~StreamingDecoder();

  /// Takes ids whose text is known already, so that what follows is decoded as their continuation: the first
  /// token of an answer then keeps the space that the first token of a text would lose.
  void follow(std::span<const int32_t> ids);
  /// The text that is certain now that `id` has come; bytes that can never become a character are given as
  /// U+FFFD, so the pieces joined equal replace_invalid_utf8(decode(all ids)). Throws InputError for an
  /// unknown id.
  std::string push(int32_t id);
  /// What is left at the end: U+FFFD for an unfinished character, else nothing. The decoder can be used
  /// again.
  std::string flush();

 private:
  void decode(int32_t id);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
  std::unique_ptr<DecodeStream> stream_;  // Null when bytes are joined.
};

}  // namespace megalith
