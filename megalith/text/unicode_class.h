// The character classes that split patterns distinguish: letters (\p{L}), numbers (\p{N}), white space (\s),
// and the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace megalith {

enum class CharacterClass : uint8_t { other = 0, letter = 1, number = 2, space = 3 };

/// The table for all code points, made from PCRE2 at the first call (some milliseconds), so that a
/// hand-written splitter and a regular expression agree on the Unicode version.
const uint8_t* unicode_class_table();

/// The class of a code point, at most U+10FFFF.
inline CharacterClass unicode_class(uint32_t code_point) {
  static const uint8_t* const table = unicode_class_table();
  return static_cast<CharacterClass>(table[code_point]);
}

namespace detail {
constexpr std::array<CharacterClass, 128> make_ascii_classes() {
  std::array<CharacterClass, 128> classes{};
  for (size_t c = 0; c < 128; ++c) {
    classes[c] = CharacterClass::other;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = CharacterClass::letter;
    if (c >= '0' && c <= '9') classes[c] = CharacterClass::number;
    if (c == ' ' || (c >= 9 && c <= 13)) classes[c] = CharacterClass::space;
  }
  return classes;
}
}  // namespace detail

inline constexpr std::array<CharacterClass, 128> kAsciiClasses = detail::make_ascii_classes();

}  // namespace megalith
