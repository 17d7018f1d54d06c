// SentencePiece models (.model): a protocol buffer with the pieces, and how they were trained and normalised.
#pragma once

#include <string_view>

#include "megalith/text/tokenizer_description.h"

namespace megalith {

/// Whether a file begins as a SentencePiece model does: with a piece.
bool is_sentencepiece_model(std::string_view bytes);

/// Describes a model of type unigram or bpe so that ids are those of SentencePiece; texts point into `bytes`.
/// Throws InputError naming the file and the field for a damaged file, another type and a field that would
/// change ids and is not known.
TokenizerDescription read_sentencepiece_model(std::string_view bytes, std::string_view name);

}  // namespace megalith
