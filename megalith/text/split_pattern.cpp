#include "megalith/text/split_pattern.h"

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/unicode_class.h"

namespace megalith {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// The possessive marks change nothing: what follows them never matches what they hold. Nor does one line
// break instead of several after a greedy \s*.
constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t size() const { return text_.size(); }
  unsigned char byte(size_t at) const { return static_cast<unsigned char>(text_[at]); }
  bool is(size_t at, char c) const { return at < text_.size() && text_[at] == c; }

  // The class of the character at `at`, and the offset after it.
  CharacterClass classify(size_t at, size_t& next) const {
    const unsigned char first = byte(at);
    if (first < 0x80) [[likely]] {
      next = at + 1;
      return kAsciiClasses[first];
    }
    next = at;
    return unicode_class(next_code_point(text_, next));
  }

  // The end of the run of characters of one class from `at` on.
  size_t run(CharacterClass wanted, size_t at) const {
    while (at < text_.size()) {
      size_t next = 0;
      if (classify(at, next) != wanted) break;
      at = next;
    }
    return at;
  }

  size_t newlines(size_t at) const {
    while (at < text_.size() && (text_[at] == '\n' || text_[at] == '\r')) ++at;
    return at;
  }

  // The end of a contraction that begins with the apostrophe at `at`; `at` when there is none.
  template <bool ignore_case>
  size_t contraction(size_t at) const {
    const auto letter = [&](size_t offset) -> char {
      if (at + offset >= text_.size()) return '\0';
      const char c = text_[at + offset];
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(1);
    switch (first) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return at + 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? at + 3 : at;
      case 'l':
        return letter(2) == 'l' ? at + 3 : at;
      default:
        break;
    }
    // U+017F, the long s, is another case of s.
    if (ignore_case && letter(1) == '\xC5' && letter(2) == '\xBF') return at + 3;
    return at;
  }

  // White space from `at` to `end`, of which the last character goes to the piece after it: \s+(?!\S)|\s+.
  size_t leave_last(size_t at, size_t end) const {
    if (end == text_.size()) return end;
    size_t last = end - 1;
    while ((byte(last) & 0xC0) == 0x80) --last;
    return last == at ? end : last;
  }

 private:
  std::string_view text_;
};

size_t gpt2_piece(const Scanner& text, size_t at) {
  size_t next = 0;
  const CharacterClass first = text.classify(at, next);
  if (first == CharacterClass::letter || first == CharacterClass::number) return text.run(first, next);
  if (first == CharacterClass::space) {
    if (text.byte(at) == ' ' && next < text.size()) {
      size_t after = 0;
      const CharacterClass second = text.classify(next, after);
      if (second != CharacterClass::space) return text.run(second, after);
    }
    return text.leave_last(at, text.run(CharacterClass::space, next));
  }
  if (text.byte(at) == '\'') {
    const size_t end = text.contraction<false>(at);
    if (end != at) return end;
  }
  return text.run(CharacterClass::other, next);
}

template <int maximum_digits>
size_t llama3_piece(const Scanner& text, size_t at) {
  size_t next = 0;
  const CharacterClass first = text.classify(at, next);
  if (first == CharacterClass::letter) return text.run(CharacterClass::letter, next);
  if (first == CharacterClass::number) {
    for (int digits = 1; digits < maximum_digits && next < text.size(); ++digits) {
      size_t after = 0;
      if (text.classify(next, after) != CharacterClass::number) break;
      next = after;
    }
    return next;
  }
  const unsigned char byte = text.byte(at);
  if (byte == '\'') {
    const size_t end = text.contraction<true>(at);
    if (end != at) return end;
  }
  if (byte != '\n' && byte != '\r' && next < text.size()) {
    size_t after = 0;
    const CharacterClass second = text.classify(next, after);
    if (second == CharacterClass::letter) return text.run(CharacterClass::letter, after);
    if (byte == ' ' && second == CharacterClass::other)
      return text.newlines(text.run(CharacterClass::other, after));
  }
  if (first == CharacterClass::other) return text.newlines(text.run(CharacterClass::other, next));
  const size_t end = text.run(CharacterClass::space, next);
  for (size_t i = end; i > at; --i) {  // \s*[\r\n]+ ends after the last line break of the run.
    if (text.is(i - 1, '\n') || text.is(i - 1, '\r')) return i;
  }
  return text.leave_last(at, end);
}

template <class Piece>
void split_with(Piece piece, std::string_view text, size_t base, std::vector<size_t>& ends) {
  const Scanner scanner(text);
  for (size_t at = 0; at < text.size();) {
    at = piece(scanner, at);
    ends.push_back(base + at);
  }
}

}  // namespace

FastSplitter fast_splitter(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return FastSplitter::gpt2;
  if (pattern == kLlama3Pattern || pattern == kCl100kPattern) return FastSplitter::llama3;
  if (pattern == kQwen2Pattern) return FastSplitter::qwen2;
  return FastSplitter::none;
}

std::string_view split_pattern(std::string_view name) {
  if (name == "gpt2") return kGpt2Pattern;
  if (name == "llama3") return kLlama3Pattern;
  if (name == "qwen2") return kQwen2Pattern;
  if (name == "cl100k") return kCl100kPattern;
  if (name == "o200k") return kO200kPattern;
  fail_input("unknown split pattern '{}': expected gpt2, cl100k, llama3, qwen2 or o200k", name);
}

bool splits_at_spaces(std::string_view pattern) {
  return pattern == kO200kPattern;
}

void split_fast(FastSplitter splitter, std::string_view text, size_t base, std::vector<size_t>& ends) {
  switch (splitter) {
    case FastSplitter::gpt2:
      return split_with([](const Scanner& s, size_t at) { return gpt2_piece(s, at); }, text, base, ends);
    case FastSplitter::llama3:
      return split_with([](const Scanner& s, size_t at) { return llama3_piece<3>(s, at); }, text, base, ends);
    case FastSplitter::qwen2:
      return split_with([](const Scanner& s, size_t at) { return llama3_piece<1>(s, at); }, text, base, ends);
    case FastSplitter::none:
      break;
  }
  fail("split_fast: no splitter");
}

}  // namespace megalith
