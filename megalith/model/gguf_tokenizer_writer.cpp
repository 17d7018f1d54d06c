// Writes tokenizers into GGUF files: which writer a tokenizer needs.
#include <algorithm>

#include "megalith/model/gguf_vocabulary.h"

namespace megalith {

namespace {

using namespace gguf_token;

bool spells_bytes(const TokenizerDescription& description) {
  return std::any_of(description.pre_tokenizer.begin(), description.pre_tokenizer.end(),
                     [](const auto& step) { return step.kind == PreTokenizerKind::byte_level; });
}

}  // namespace

void add_tokenizer_to_gguf(const Tokenizer& tokenizer, int64_t vocabulary,
                           const std::vector<int32_t>& end_of_text, GgufWriter& writer) {
  const TokenizerDescription& description = tokenizer.implementation().description;
  switch (description.model.kind) {
    case ModelKind::bpe:
      if (tokenizer.implementation().byte_level || spells_bytes(description))
        return add_byte_level(tokenizer, vocabulary, end_of_text, writer);
      [[fallthrough]];
    case ModelKind::scored_bpe:
      return add_scored(tokenizer, vocabulary, end_of_text, writer);
    case ModelKind::word_piece:
      return add_word_piece(tokenizer, vocabulary, end_of_text, writer);
    case ModelKind::unigram:
      refuse("its model is Unigram");
    case ModelKind::word_level:
      refuse("its model is WordLevel");
  }
}

}  // namespace megalith
