#include "megalith/text/stretch.h"

#include <algorithm>

#include "megalith/base/utf8.h"
#include "megalith/text/unicode_class.h"

namespace megalith {

size_t safe_cut(std::string_view text, size_t limit, Cuts cuts) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const auto is_letter = [&](size_t at) {
    return byte(at) < 0x80 && kAsciiClasses[byte(at)] == CharacterClass::letter;
  };
  const auto is_visible = [&](size_t at) { return byte(at) > ' ' && byte(at) < 0x7F; };
  // Characters of three bytes from U+3000 on are not white space, but for U+3000 itself.
  const auto is_visible_triple = [&](size_t at) {
    if (at + 2 >= text.size() || byte(at) < 0xE3 || byte(at) > 0xEF) return false;
    return byte(at) != 0xE3 || byte(at + 1) != 0x80 || byte(at + 2) != 0x80;
  };
  if (text.size() < 2 || cuts == Cuts::none) return 0;
  for (size_t at = std::min(limit, text.size() - 1); at > 0; --at) {
    if (byte(at) == ' ') {
      if (is_letter(at - 1) && at + 1 < text.size() && is_letter(at + 1)) return at;
    } else if (cuts == Cuts::spaces_and_lines && byte(at - 1) == '\n' && at >= 2 &&
               (is_visible(at) || is_visible_triple(at)) &&
               (is_visible(at - 2) || (at >= 4 && is_visible_triple(at - 4)))) {
      return at;
    }
  }
  return 0;
}

size_t stretch(std::string_view text, Cuts cuts, size_t wanted) {
  if (cuts == Cuts::none || text.size() <= wanted) return text.size();
  // Look for a cut no further back than half a stretch, then take a longer one.
  for (size_t limit = wanted; limit < text.size(); limit *= 2) {
    const size_t from = limit / 2;
    const size_t cut = safe_cut(text.substr(from, limit - from + 2), limit - from, cuts);
    if (cut > 0) return from + cut;
  }
  return text.size();
}

size_t invalid_run(std::string_view text) {
  size_t length = 1;
  while (length < text.size()) {
    const size_t window = std::min<size_t>(4, text.size() - length);
    bool begins = false;
    for (size_t n = 1; n <= window && !begins; ++n) begins = is_valid_utf8(text.substr(length, n));
    if (begins) break;
    ++length;
  }
  return length;
}

}  // namespace megalith
