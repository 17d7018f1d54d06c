// Writes a byte-level BPE vocabulary as a Hugging Face tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

}  // namespace megalith
