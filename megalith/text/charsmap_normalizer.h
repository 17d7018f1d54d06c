// Normalizers with a precompiled character map: the one of tokenizer.json, and SentencePiece's own.
#pragma once

#include <memory>

#include "megalith/text/normalizer.h"

namespace megalith {

/// As the tokenizers library does: each grapheme of up to five bytes, else each character, is replaced as a
/// whole by what the shortest key at its begin stands for.
std::unique_ptr<NormalizerOperation> make_precompiled(const NormalizerStep& step);

/// As SentencePiece does: the longest key at each place is replaced, runs of spaces are joined and those at
/// both ends dropped when asked for, spaces are escaped, and one is put before (or behind) the text.
std::unique_ptr<NormalizerOperation> make_sentencepiece_normalizer(const NormalizerStep& step);

}  // namespace megalith
