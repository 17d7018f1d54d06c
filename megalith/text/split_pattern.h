// The split patterns of GPT-2 and Llama 3, as regular expressions and as hand-written splitters with equal
// results.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

extern const std::string_view kGpt2Pattern;
extern const std::string_view kLlama3Pattern;

/// Splitters that need no regular expression.
enum class FastSplitter {
  none,
  gpt2,
  llama3,  // also cl100k, which differs in spelling alone
  qwen2,   // llama3 with digits one by one
};

/// Whether a pattern without such a splitter always splits before a space between two ASCII letters.
bool splits_at_spaces(std::string_view pattern);

/// The hand-written splitter that equals a pattern, if there is one.
FastSplitter fast_splitter(std::string_view pattern);

/// The pattern of a name: "gpt2", "cl100k", "llama3", "qwen2" or "o200k". Throws InputError for another one.
std::string_view split_pattern(std::string_view name);

/// Appends the end offset of each piece of `text` (valid UTF-8, begin 0) to `ends`, plus `base`.
void split_fast(FastSplitter splitter, std::string_view text, size_t base, std::vector<size_t>& ends);

}  // namespace megalith
