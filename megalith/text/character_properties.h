// Properties of characters, as the tokenizers library sees them.
//
// That library has the marks and punctuation of old Unicode versions built in (8 and 9), while white space,
// numbers and letters are those of a recent one. Characters that are younger than its tables, and the few
// that have been classed anew since, are treated as it treats them.
#pragma once

#include <cstdint>

namespace megalith {

/// White_Space.
bool is_white_space(uint32_t code_point);
/// General category N.
bool is_numeric(uint32_t code_point);
/// ASCII punctuation and symbols, or general category P.
bool is_punctuation(uint32_t code_point);
/// General category Cc, Cf or Co.
bool is_control_or_format(uint32_t code_point);
/// General category Mn, and M.
bool is_nonspacing_mark(uint32_t code_point);
bool is_mark(uint32_t code_point);
/// A word character of a regular expression: alphabetic, mark, decimal number, connector, joiner.
bool is_word_character(uint32_t code_point);
/// CJK ideographs, as BERT counts them.
bool is_chinese(uint32_t code_point);
/// The lower case, for all but U+0130, whose is two characters.
uint32_t lower_case(uint32_t code_point);
/// The number of the script; kana counts as Han, as SentencePiece has it. Negative for a space and for
/// characters unknown to Unicode 9, which are at home in every script.
int script_of(uint32_t code_point);

}  // namespace megalith
