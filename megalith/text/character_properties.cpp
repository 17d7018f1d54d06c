#include "megalith/text/character_properties.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

namespace megalith {

namespace {

constexpr uint8_t kCategoriesOfUnicode = 8;
constexpr uint8_t kMarksOfUnicode = 9;

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
  return (category_mask(c) & U_GC_N_MASK) != 0;
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
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) != 0;
}

bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

int script_of(uint32_t c) {
  if (c == ' ') return -1;
  if (c == 0x30FC) return USCRIPT_HAN;
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &error);
  return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
}

}  // namespace megalith
