// The ways in which tokenizer.json's pre-tokenizers split a text.
#pragma once

#include <memory>
#include <string_view>

#include "megalith/text/pre_tokenizer.h"

namespace megalith {

/// By a pattern; by a hand-written splitter where there is one.
std::unique_ptr<Splitter> make_pattern_splitter(const TextPattern& pattern, SplitBehavior behavior,
                                                bool invert, std::string_view element);
/// At each character (or run of them) of a kind.
std::unique_ptr<Splitter> make_character_splitter(bool (*splits)(uint32_t), SplitBehavior behavior);
/// Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, UnicodeScripts, CharDelimiterSplit,
/// FixedLength.
std::unique_ptr<Splitter> make_splitter(const PreTokenizerStep& step);

}  // namespace megalith
