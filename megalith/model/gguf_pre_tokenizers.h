// The names that llama.cpp gives to the ways in which byte-level BPE tokenizers split texts.
#pragma once

#include <string_view>
#include <vector>

#include "megalith/text/tokenizer_description.h"

namespace megalith {

struct GgufPreTokenizer {
  /// The first name is the one that is written.
  std::vector<std::string_view> names;
  std::vector<PreTokenizerStep> steps;
  /// What llama.cpp does for these names unless the file says otherwise.
  bool ignore_merges = false;
  bool add_bos = false;
  bool add_separator = false;
};

const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();

}  // namespace megalith
