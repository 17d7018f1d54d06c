// GPT-2's byte alphabet: a printable character for each of the 256 bytes.
//
// Bytes 33-126, 161-172 and 174-255 are written as the character with that number; the others, in rising
// order, as U+0100 on. tokenizer.json spells byte-level pieces in this alphabet ("Ġthe" is " the").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megalith {

/// The code point that stands for each byte.
const std::array<uint16_t, 256>& byte_alphabet();

/// Spells bytes in the alphabet, as UTF-8.
std::string spell_bytes(std::string_view bytes);

/// The bytes that a piece spells; nothing when it holds a character outside the alphabet. `piece` must be
/// valid UTF-8.
std::optional<std::string> unspell_bytes(std::string_view piece);

}  // namespace megalith
