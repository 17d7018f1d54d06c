#include "megalith/base/utf8.h"

#include <cstring>

namespace megalith {

namespace {

// Length of the valid character at `offset`; 0 when it is invalid; -n when the text ends inside a so far
// valid character of which n bytes are there. `invalid_length` is set to the length of the maximal invalid
// part.
int character_length(std::string_view text, size_t offset, size_t& invalid_length) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  invalid_length = 1;
  const unsigned first = byte(offset);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned low = 0x80,
           high = 0xBF;  // Allowed range of the second byte: excludes overlong forms and surrogates.
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    if (offset + i >= text.size()) return -i;
    const unsigned next = byte(offset + i);
    if (next < low || next > high) {
      invalid_length = static_cast<size_t>(i);
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t offset = 0, invalid_length = 0;
  while (offset < text.size()) {
    if (offset + 8 <= text.size()) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + offset, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        offset += 8;
        continue;
      }
    }
    const int length = character_length(text, offset, invalid_length);
    if (length <= 0) return offset;
    offset += static_cast<size_t>(length);
  }
  return offset;
}

size_t complete_utf8_prefix(std::string_view text) {
  // Only the last three bytes can belong to an unfinished character.
  const size_t begin = text.size() < 3 ? 0 : text.size() - 3;
  for (size_t offset = begin; offset < text.size(); ++offset) {
    size_t invalid_length = 0;
    if ((static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80) continue;
    if (character_length(text, offset, invalid_length) < 0) return offset;
  }
  return text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t offset = 0;
  while (offset < text.size()) {
    const std::string_view rest = text.substr(offset);
    const size_t good = valid_utf8_prefix(rest);
    out.append(rest.substr(0, good));
    offset += good;
    if (offset >= text.size()) break;
    size_t invalid_length = 0;
    const int length = character_length(text, offset, invalid_length);
    out.append("\xEF\xBF\xBD");
    offset += length < 0 ? static_cast<size_t>(-length) : invalid_length;
  }
  return out;
}

void append_utf8(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    text.push_back(static_cast<char>(0xC0 | (c >> 6)));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | (c >> 12)));
    text.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    text.push_back(static_cast<char>(0xF0 | (c >> 18)));
    text.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    text.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

uint32_t next_code_point(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at])); };
  const uint32_t first = byte(offset);
  if (first < 0x80) {
    offset += 1;
    return first;
  }
  if (first < 0xE0) {
    const uint32_t c = ((first & 0x1F) << 6) | (byte(offset + 1) & 0x3F);
    offset += 2;
    return c;
  }
  if (first < 0xF0) {
    const uint32_t c = ((first & 0x0F) << 12) | ((byte(offset + 1) & 0x3F) << 6) | (byte(offset + 2) & 0x3F);
    offset += 3;
    return c;
  }
  const uint32_t c = ((first & 0x07) << 18) | ((byte(offset + 1) & 0x3F) << 12) |
                     ((byte(offset + 2) & 0x3F) << 6) | (byte(offset + 3) & 0x3F);
  offset += 4;
  return c;
}

}  // namespace megalith
