#include "megalith/model/tokenizer_files.h"

#include "megalith/base/error.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/formats/gguf.h"
#include "megalith/model/gguf_tokenizer.h"

namespace megalith {

namespace fs = std::filesystem;

fs::path find_tokenizer_file(const fs::path& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model"}) {
    if (fs::is_regular_file(directory / name)) return directory / name;
  }
  return {};
}

Tokenizer open_tokenizer(const fs::path& path, std::string_view pattern) {
  if (fs::is_directory(path)) {
    fs::path file = find_tokenizer_file(path);
    if (file.empty()) {
      if (const auto checkpoint = find_checkpoint(path)) file = find_tokenizer_file(*checkpoint);
    }
    check_input(!file.empty(), "{}: the directory holds no tokenizer.json, tokenizer.model or spiece.model",
                path.string());
    return Tokenizer::load(file, pattern);
  }
  if (fs::is_regular_file(path) && is_gguf(path)) {
    const auto tokenizer = tokenizer_from_gguf(GgufFile(path));
    check_input(tokenizer.has_value(), "{}: the file holds no tokenizer", path.string());
    return *tokenizer;
  }
  return Tokenizer::load(path, pattern);
}

}  // namespace megalith
