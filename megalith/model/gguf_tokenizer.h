// Tokenizers inside GGUF files, as tokenizer.json texts, and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/formats/gguf.h"

namespace megalith {

/// The tokenizer.json that says what a file's tokenizer.ggml.* keys say; empty when it has none. Byte-level
/// BPE
/// ("gpt2") is known, with the pre-tokenizers that docs/models.md lists. Throws InputError for another model,
/// a missing or unknown tokenizer.ggml.pre (a wrong guess would cost quality silently), and tables that do
/// not fit each other.
std::string tokenizer_json_from_gguf(const GgufFile& file);

/// Ids that end a text: tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id.
std::vector<int32_t> end_of_text_ids(const GgufFile& file);

/// Adds the tokenizer.ggml.* keys; `vocabulary` ids beyond the tokenizer's are unused tokens. `end_of_text`
/// (may be empty) names the end token and the end-of-turn token. Throws InputError for a tokenizer that
/// GGUF's keys cannot express.
void add_tokenizer_to_gguf(const std::string& tokenizer_json, int64_t vocabulary,
                           const std::vector<int32_t>& end_of_text, GgufWriter& writer);

}  // namespace megalith
