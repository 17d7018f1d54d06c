// SentencePiece's precompiled character maps: a double-array trie (Darts) over keys, and their replacements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

class Charsmap {
 public:
  /// Of a normalizer without a map.
  Charsmap() = default;
  /// Reads the binary form: the size of the trie in bytes, the trie, the replacements, each ended by a zero
  /// byte. Throws InputError starting with `element` when it is damaged.
  Charsmap(std::string_view binary, std::string_view element);

  struct Match {
    size_t length = 0;  // of the key; 0 when none matches
    std::string_view replacement;
  };
  /// The longest, or the shortest, key that `text` begins with.
  Match longest(std::string_view text) const { return find(text, false); }
  Match shortest(std::string_view text) const { return find(text, true); }
  /// Whether a key begins with this byte and goes on.
  bool goes_on_after(char byte) const;
  bool empty() const { return units_.empty(); }

 private:
  Match find(std::string_view text, bool first) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace megalith
