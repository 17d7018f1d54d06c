// UTF-8: validation and the boundaries of characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace megalith {

/// Byte offset of the first byte that does not belong to valid UTF-8 (no overlong forms, no surrogates, at
/// most U+10FFFF), or text.size() when all of it is valid.
size_t valid_utf8_prefix(std::string_view text);

inline bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

/// Length of the longest prefix that does not end inside a character: what a stream may show now. Bytes that
/// can never become valid count as complete.
size_t complete_utf8_prefix(std::string_view text);

/// Replaces every maximal invalid part by U+FFFD, as the Unicode standard recommends and Python's
/// errors="replace" does.
std::string replace_invalid_utf8(std::string_view text);

/// Appends one code point.
void append_utf8(std::string& text, uint32_t code_point);

/// Decodes the character at `offset` of valid UTF-8 and moves the offset past it.
uint32_t next_code_point(std::string_view text, size_t& offset);

}  // namespace megalith
