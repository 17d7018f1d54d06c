#include "megalith/text/character_properties.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <iterator>

namespace megalith {

namespace {

constexpr uint8_t kCategoriesOfUnicode = 8;
constexpr uint8_t kMarksOfUnicode = 9;
constexpr uint8_t kScriptsOfUnicode = 9;

// Word characters and numbers of Unicode 16 and 17, which ICU 72 does not know yet.
struct Range {
  uint32_t first, last;
};
constexpr Range kYoungWords[] = {
    {0x897, 0x897},     {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
    {0x10D40, 0x10D65}, {0x10D69, 0x10D6D}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x10EFC, 0x10EFC},
    {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113C0},
    {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D3}, {0x113E1, 0x113E2},
    {0x116D0, 0x116E3}, {0x11BC0, 0x11BE0}, {0x11BF0, 0x11BF9}, {0x11F5A, 0x11F5A}, {0x13460, 0x143FA},
    {0x16100, 0x16139}, {0x16D40, 0x16D6C}, {0x16D70, 0x16D79}, {0x18CFF, 0x18CFF}, {0x1CCF0, 0x1CCF9},
    {0x1E5D0, 0x1E5FA}};
constexpr Range kYoungNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
                                   {0x11DE0, 0x11DE9}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
                                   {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};

template <size_t N>
bool is_in(const Range (&ranges)[N], uint32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return c >= range.first && c <= range.last; });
}

bool is_known_since(uint32_t c, uint8_t version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && (age[0] < version || (age[0] == version && age[1] == 0));
}

uint32_t category_mask(uint32_t c) {
  return U_MASK(u_charType(static_cast<UChar32>(c)));
}

}  // namespace

bool is_white_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}

bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return (category_mask(c) & U_GC_N_MASK) != 0 || (c >= 0x10D40 && is_in(kYoungNumbers, c));
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  if (c == 0x166D || c == 0x111C9) return true;
  return (category_mask(c) & U_GC_P_MASK) != 0 && is_known_since(c, kCategoriesOfUnicode);
}

bool is_control_or_format(uint32_t c) {
  if (c < 0x80) return c < 0x20 || c == 0x7F;
  const uint32_t category = category_mask(c);
  if ((category & (U_GC_CC_MASK | U_GC_CO_MASK)) != 0) return true;
  return (category & U_GC_CF_MASK) != 0 && is_known_since(c, kCategoriesOfUnicode);
}

bool is_nonspacing_mark(uint32_t c) {
  if (c < 0x300) return false;
  if (c == 0x1734) return true;
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;
  return (category_mask(c) & U_GC_MN_MASK) != 0 && is_known_since(c, kCategoriesOfUnicode);
}

bool is_mark(uint32_t c) {
  if (c < 0x300) return false;
  if (c == 0x1CF2 || c == 0x1CF3) return true;
  if (c == 0x111C9) return false;
  return (category_mask(c) & U_GC_M_MASK) != 0 && is_known_since(c, kMarksOfUnicode);
}

bool is_word_character(uint32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  if ((category_mask(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0) return true;
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) != 0 || is_in(kYoungWords, c);
}

bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

int script_of(uint32_t c) {
  if (c == ' ') return -1;
  if (c == 0x30FC) return USCRIPT_HAN;
  if (c == 0x589 || c == 0x61C) return USCRIPT_COMMON;
  if (c == 0x953 || c == 0x954) return USCRIPT_INHERITED;
  if (c >= 0x80 && !is_known_since(c, kScriptsOfUnicode)) return -1;
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &error);
  if (script == USCRIPT_UNKNOWN) return -1;
  return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
}

uint32_t lower_case(uint32_t c) {
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    default:
      return static_cast<uint32_t>(u_tolower(static_cast<UChar32>(c)));
  }
}

}  // namespace megalith
