// Where the fixtures lie, and small vocabularies made on the spot.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "megalith/text/tokenizer_writer.h"

namespace megalith::testing {

inline std::filesystem::path fixture(const std::string& name) {
  const char* root = std::getenv("MEGALITH_TEST_DATA");
  return std::filesystem::path(root == nullptr ? "tests" : root) / "text" / "fixtures" / name;
}

/// The 256 bytes as pieces: byte b has id b + number of special tokens.
inline ByteLevelVocabulary byte_vocabulary(const std::string& pattern = "gpt2") {
  ByteLevelVocabulary vocabulary{
      .special_tokens = {"<|endoftext|>"}, .pieces = {}, .merges = {}, .pattern = pattern};
  for (int byte = 0; byte < 256; ++byte) vocabulary.pieces.emplace_back(1, static_cast<char>(byte));
  return vocabulary;
}

}  // namespace megalith::testing
