// Writes a byte-level BPE vocabulary as a Hugging Face tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/text/tokenizer.h"

namespace megalith {

struct ByteLevelVocabulary {
  /// Special tokens, with ids 0, 1, ...
  std::vector<std::string> special_tokens;
  /// The bytes of the pieces that follow them.
  std::vector<std::string> pieces;
  /// Pairs of ids, in the order of their ranks.
  std::vector<std::pair<int32_t, int32_t>> merges;
  /// "gpt2" or "llama3".
  std::string pattern;
};

std::string write_tokenizer_json(const ByteLevelVocabulary& vocabulary);

/// The tokenizer.json of a tokenizer that was not read from one. Pairs that are joined by score become merges
/// in the order of the scores; SentencePiece's rules of white space become steps of their own.
std::string write_tokenizer_json(const Tokenizer::Implementation& tokenizer);

}  // namespace megalith
