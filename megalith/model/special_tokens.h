// Token ids that model files name for the begin and the end of a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "megalith/text/added_tokens.h"

namespace megalith {

/// Negative when there is none.
struct SpecialTokenIds {
  int64_t beginning_of_text = -1;
  int64_t end_of_text = -1;
};

/// By the usual names among the added tokens of a tokenizer.json: <|endoftext|> (both), <s> and </s>,
/// <|begin_of_text|> and <|end_of_text|>, <bos> and <eos>. A text that is no tokenizer.json has none.
SpecialTokenIds special_token_ids(const std::string& tokenizer_json);
SpecialTokenIds special_token_ids(std::span<const AddedToken> added_tokens);

}  // namespace megalith
