// What the writers of tokenizers into GGUF share (for model/gguf_*_writer.cpp alone).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/formats/gguf.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/text/tokenizer_implementation.h"

namespace megalith::gguf_token {

using Parts = Tokenizer::Implementation;

inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

[[noreturn]] void refuse(const std::string& what);
/// A step of a tokenizer.json by its place; those of other files have none.
[[noreturn]] void refuse_step(const std::string& element, const std::string& what);
/// Refuses an added token with a flag that GGUF lacks.
void check_plain(const AddedToken& token);

/// The token before and the token behind a text; negative for nothing.
struct Affixes {
  explicit Affixes(const Parts& parts);
  int64_t before = -1, after = -1;
};

/// Nothing for a negative id.
void add_id(const char* key, int64_t id, GgufWriter& writer);
void add_end_ids(const std::vector<int32_t>& ends, GgufWriter& writer);
/// Which tokens begin and end texts, and which of them are added to every text.
void add_special_ids(const Parts& parts, const std::vector<int32_t>& end_of_text, GgufWriter& writer);

/// The lists that have one entry for each id of the model.
class Vocabulary {
 public:
  explicit Vocabulary(int64_t size)
      : tokens_(static_cast<size_t>(size)), types_(static_cast<size_t>(size), kUnused), set_(types_.size()) {}

  void set(int64_t id, std::string_view text, Type type);
  // Names the ids that have no token. llama.cpp refuses two tokens with the same text.
  void finish();
  void write(GgufWriter& writer) const;
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& text(int64_t id) const { return tokens_[static_cast<size_t>(id)]; }
  Type type(int64_t id) const { return static_cast<Type>(types_[static_cast<size_t>(id)]); }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::vector<bool> set_;
};

/// Adds a tokenizer of one kind; see add_tokenizer_to_gguf().
void add_byte_level(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                    GgufWriter& writer);
void add_scored(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                GgufWriter& writer);
void add_word_piece(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                    GgufWriter& writer);

}  // namespace megalith::gguf_token
