// tiktoken's rank files: a line for each token, its bytes in base64 and its rank.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "megalith/text/tokenizer_description.h"

namespace megalith {

/// Whether a file's first line is a token and a rank.
bool is_tiktoken_file(std::string_view bytes);

/// Describes a byte-level BPE whose pairs are joined when their bytes are a token. `pattern` is the name of a
/// split pattern (see split_pattern); empty, it follows, with the special tokens, from a known number of
/// ranks: GPT-2, cl100k, o200k, Llama 3, Qwen 2. Throws InputError naming the file and the line, or the
/// number of ranks that is not known. `storage` holds the texts.
TokenizerDescription read_tiktoken_file(std::string_view bytes, std::string_view pattern,
                                        std::string_view name, std::deque<std::string>& storage);

}  // namespace megalith
