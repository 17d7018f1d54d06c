// Tokenizers inside GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/formats/gguf.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

/// The tokenizer that a file's tokenizer.ggml.* keys describe; nothing when it has none. Known are "gpt2"
/// (byte-level BPE) with the pre-tokenizers that docs/models.md lists, "llama" (SentencePiece's BPE) and
/// "bert" (WordPiece), with the ids of llama.cpp. Throws InputError for another model, a missing or unknown
/// tokenizer.ggml.pre (a wrong guess would cost quality silently), and tables that do not fit each other.
std::optional<Tokenizer> tokenizer_from_gguf(const GgufFile& file);

/// The same as a tokenizer.json; empty when there is none.
std::string tokenizer_json_from_gguf(const GgufFile& file);

/// Ids that end a text: tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id.
std::vector<int32_t> end_of_text_ids(const GgufFile& file);

/// Adds the tokenizer.ggml.* keys; `vocabulary` ids beyond the tokenizer's are unused tokens. `end_of_text`
/// (may be empty) names the end token and the end-of-turn token. Throws InputError for a tokenizer that
/// GGUF's keys cannot express.
void add_tokenizer_to_gguf(const std::string& tokenizer_json, int64_t vocabulary,
                           const std::vector<int32_t>& end_of_text, GgufWriter& writer);

}  // namespace megalith
