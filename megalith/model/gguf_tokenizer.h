// Tokenizers inside GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/formats/gguf.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

/// tokenizer.ggml.token_type
namespace gguf_token {
enum Type : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
}

/// How many characters a word of a WordPiece vocabulary may have before it becomes the unknown token. GGUF
/// has no key for it, so that this one is Megalith's; a file without it sets no limit.
inline constexpr const char* kGgufLongestWordKey = "megalith.tokenizer.max_input_chars_per_word";

/// Whether user-defined pieces are found by the model, in normalised text, which goes on behind them without
/// a space, as in SentencePiece. Without it, in llama.cpp always, they are looked for before anything else,
/// and what lies between them are texts of their own. A key of Megalith's too.
inline constexpr const char* kGgufUserDefinedInTextKey = "megalith.tokenizer.user_defined_in_text";

/// The tokenizer that a file's tokenizer.ggml.* keys describe; nothing when it has none. Known are "gpt2"
/// (byte-level BPE) with the pre-tokenizers that docs/models.md lists, "llama" (SentencePiece's BPE) and
/// "bert" (WordPiece), with the ids of llama.cpp. Throws InputError for another model, a missing or unknown
/// tokenizer.ggml.pre (a wrong guess would cost quality silently), and tables that do not fit each other.
std::optional<Tokenizer> tokenizer_from_gguf(const GgufFile& file);

/// Ids that end a text: tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id.
std::vector<int32_t> end_of_text_ids(const GgufFile& file);

/// Adds the tokenizer.ggml.* keys; `vocabulary` ids beyond the tokenizer's are unused tokens. `end_of_text`
/// (may be empty) names the end token and the end-of-turn token. What is written gives every text the ids
/// that it has now: byte-level BPE becomes the model "gpt2", BPE with byte fallback "llama", WordPiece
/// "bert". Throws InputError naming the element of a tokenizer that GGUF's keys cannot express.
void add_tokenizer_to_gguf(const Tokenizer& tokenizer, int64_t vocabulary,
                           const std::vector<int32_t>& end_of_text, GgufWriter& writer);

}  // namespace megalith
