// Tokenizers wherever they lie: a file of their own, inside a GGUF file, or beside a model.
#pragma once

#include <filesystem>
#include <string_view>

#include "megalith/text/tokenizer.h"

namespace megalith {

/// Opens a tokenizer.json, a SentencePiece model, a tiktoken file (`pattern` as in Tokenizer::load), the
/// tokenizer of a GGUF file, or that of a directory: a Hugging Face directory, a run, a checkpoint. Throws
/// InputError that names the path.
Tokenizer open_tokenizer(const std::filesystem::path& path, std::string_view pattern = {});

/// The file that holds a directory's tokenizer: tokenizer.json, tokenizer.model or spiece.model; empty when
/// there is none.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& directory);

}  // namespace megalith
