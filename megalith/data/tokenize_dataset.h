// Turns text into token datasets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megalith/text/tokenizer.h"

namespace megalith {

struct TokenizeOptions {
  /// Files, directories, "-".
  std::vector<std::string> inputs;
  /// Key k gives PREFIX_<k>_document.bin and .idx. Plain text goes to the first key.
  std::vector<std::string> json_keys = {"text"};
  std::string output_prefix;
  /// Every document ends with the end-of-document token.
  bool append_end_of_document = false;
  /// Threads that encode. The result does not depend on it.
  int workers = 1;
  std::string reject_file = {};
  bool strict = false;
  std::string document_separator = {};
  bool stdin_is_json = false;
  /// Called now and then with the bytes of text read so far.
  std::function<void(uint64_t bytes)> progress = {};
  /// Bytes of the tokenizer's file; when given, the datasets record which tokenizer they belong to.
  std::string tokenizer_json = {};
};

struct TokenizeResult {
  struct Output {
    std::string prefix;
    uint64_t documents = 0;
    uint64_t tokens = 0;
    /// Kept records without this key.
    uint64_t missing = 0;
  };
  std::vector<Output> outputs;
  uint64_t kept = 0;
  uint64_t dropped = 0;
  uint64_t bytes = 0;
  /// One line: kept, and dropped by kind with the first place of each.
  std::string summary;
};

/// Reads, tokenises and writes; memory is bounded by a batch of documents. Documents keep their order. Throws
/// InputError for wrong inputs, for a bad record in strict mode, and when no document is left; no dataset is
/// written then.
TokenizeResult tokenize_dataset(const Tokenizer& tokenizer, const TokenizeOptions& options);

}  // namespace megalith
