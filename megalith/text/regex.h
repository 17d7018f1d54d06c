// Regular expressions of tokenizer.json, compiled by PCRE2 with its just-in-time compiler.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace megalith {

class Regex {
 public:
  /// Unicode-aware. `\s` and `\S` mean the White_Space property, as in the engines that tokenizers were
  /// trained with (PCRE2's own adds U+180E). Throws InputError starting with `element` when the pattern is
  /// wrong or not supported.
  Regex(std::string_view pattern, std::string_view element);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Finds the first match that begins at `from` or later, empty ones included. `text` must be valid UTF-8
  /// and `from` on a character. Throws Error when matching needs more stack or steps than PCRE2 allows. Safe
  /// to call from several threads.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

/// A pattern that matches exactly `text`.
std::string quote_regex(std::string_view text);

}  // namespace megalith
