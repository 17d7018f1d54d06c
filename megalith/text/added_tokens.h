// Tokens that are found in a text as they are, before it is split: special ones and those added to a
// vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
  /// Whether split() could find anything.
  bool any(bool special) const { return special ? any_ : any_plain_; }

 private:
  // A byte-wise tree of token texts. Node 0 is the root.
  class Trie {
   public:
    void insert(std::string_view text, size_t token);
    // The longest token at `at`, or -1.
    int64_t longest(std::string_view text, size_t at) const;
    // The first position from `at` on where a token may begin.
    size_t candidate(std::string_view text, size_t at) const;
    bool empty() const { return children_.empty(); }

   private:
    std::unordered_map<uint64_t, uint32_t> children_;  // Keyed by node * 256 + byte.
    std::vector<int64_t> token_at_ = {-1};
    std::array<bool, 256> first_{};
    int distinct_first_ = 0;
    unsigned char only_first_ = 0;
  };
  void split_part(std::string_view text, Part part, const Trie& trie, std::vector<Part>& parts) const;

  std::vector<AddedToken> tokens_;
  // [special looked for][normalized]
  std::array<std::array<Trie, 2>, 2> tries_;
  bool any_ = false;
  bool any_plain_ = false;
};

}  // namespace megalith
