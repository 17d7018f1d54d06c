// The normalization forms of Unicode, with the alignment that the tokenizers library gives.
#pragma once

#include "megalith/text/aligned_text.h"

namespace megalith {

enum class NormalizationForm { nfc, nfd, nfkc, nfkd };

/// Replaces `out` by the normal form of `in`; returns false, leaving `out` alone, when nothing would change.
///
/// As in that library, characters younger than Unicode 9 do not decompose, a composed character comes from
/// the first of the characters that it was made of, and what a decomposition adds from the same character.
bool normalize(NormalizationForm form, const AlignedText& in, AlignedText& out);

}  // namespace megalith
