// Tokens that are found in a text as they are, before it is split: special ones and those added to a
// vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/text/piece_trie.h"

namespace megalith {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  /// Only as a word of its own: not beside a letter, digit, mark or connector.
  bool single_word = false;
  /// Swallows the white space before, after it.
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
};

/// Finds added tokens: the leftmost one, of those the longest, without overlap. A match that fails the
/// single-word test stays text. Tokens with normalized off are found first, the others in what lies between
/// (as in the tokenizers library).
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  /// A part of the text: a token, or text to encode (id -1).
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;
  };
  /// Replaces `parts` by the parts of `text`, in order; none is empty. Special tokens are only looked for
  /// with `special`.
  void split(std::string_view text, bool special, std::vector<Part>& parts) const;
  /// Only tokens with normalized off, or on: the others are looked for in normalised text.
  void split_raw(std::string_view text, bool special, std::vector<Part>& parts) const;
  void split_normalized(std::string_view text, bool special, std::vector<Part>& parts) const;
  /// Whether split() could find anything.
  bool any(bool special) const { return special ? any_ : any_plain_; }
  bool any_normalized(bool special) const { return !tries_[special ? 1 : 0][1].empty(); }

 private:
  // The texts of tokens.
  class Texts {
   public:
    void insert(std::string_view text, size_t token);
    // The longest token at `at`, or -1.
    int64_t longest(std::string_view text, size_t at) const;
    // The first position from `at` on where a token may begin.
    size_t candidate(std::string_view text, size_t at) const;
    bool empty() const { return trie_.empty(); }

   private:
    PieceTrie trie_;
    std::array<bool, 256> first_{};
    int distinct_first_ = 0;
    unsigned char only_first_ = 0;
  };
  void split_part(std::string_view text, Part part, const Texts& texts, std::vector<Part>& parts) const;

  std::vector<AddedToken> tokens_;
  // [special looked for][normalized]
  std::array<std::array<Texts, 2>, 2> tries_;
  bool any_ = false;
  bool any_plain_ = false;
};

}  // namespace megalith
