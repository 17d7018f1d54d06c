// Base64, as tiktoken's rank files and the character maps of tokenizer.json use it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megalith {

/// Nothing when the text is not base64 (standard alphabet, padding where it belongs).
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace megalith
