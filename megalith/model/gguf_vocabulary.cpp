#include "megalith/model/gguf_vocabulary.h"

#include <unordered_set>

#include "megalith/base/error.h"
#include "megalith/model/special_tokens.h"

namespace megalith::gguf_token {

void refuse(const std::string& what) {
  fail_input("GGUF cannot hold this tokenizer: {}", what);
}

void refuse_step(const std::string& element, const std::string& what) {
  refuse(element.empty() ? what : element + ": " + what);
}

Affixes::Affixes(const Parts& parts) {
  if (parts.prefix_ids.size() > 1 || parts.suffix_ids.size() > 1)
    refuse("post_processor: it puts more than one token before or after a text");
  if (!parts.prefix_ids.empty()) before = parts.prefix_ids.front();
  if (!parts.suffix_ids.empty()) after = parts.suffix_ids.front();
}

void add_id(const char* key, int64_t id, GgufWriter& writer) {
  if (id >= 0) writer.add(key, static_cast<uint32_t>(id));
}

void add_end_ids(const std::vector<int32_t>& ends, GgufWriter& writer) {
  constexpr const char* kEndKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
  if (ends.size() > std::size(kEndKeys))
    refuse(fmt::format("{} tokens end a text; it has room for 3", ends.size()));
  for (size_t i = 0; i < ends.size(); ++i) add_id(kEndKeys[i], ends[i], writer);
}

void add_special_ids(const Parts& parts, const std::vector<int32_t>& end_of_text, GgufWriter& writer) {
  const Affixes affixes(parts);
  const SpecialTokenIds named = special_token_ids(parts.description.added_tokens);
  std::vector<int32_t> ends = end_of_text;
  if (ends.empty() && affixes.after >= 0) ends.push_back(static_cast<int32_t>(affixes.after));
  if (ends.empty() && named.end_of_text >= 0) ends.push_back(static_cast<int32_t>(named.end_of_text));
  if (affixes.after >= 0 && affixes.after != ends.front()) {
    refuse(fmt::format("token {} stands after a text, but token {} ends one", affixes.after, ends.front()));
  }
  add_id("tokenizer.ggml.bos_token_id", affixes.before >= 0 ? affixes.before : named.beginning_of_text,
         writer);
  add_end_ids(ends, writer);
  writer.add("tokenizer.ggml.add_bos_token", affixes.before >= 0);
  writer.add("tokenizer.ggml.add_eos_token", affixes.after >= 0);
}

void check_plain(const AddedToken& token) {
  const char* const flag = token.lstrip        ? "lstrip"
                           : token.rstrip      ? "rstrip"
                           : token.single_word ? "single_word"
                                               : nullptr;
  if (flag != nullptr) refuse(fmt::format("added token '{}' has {}", token.content, flag));
}

void Vocabulary::set(int64_t id, std::string_view text, Type type) {
  if (id >= size()) refuse(fmt::format("id {} lies outside the model's {} tokens", id, size()));
  tokens_[static_cast<size_t>(id)] = text;
  types_[static_cast<size_t>(id)] = type;
  set_[static_cast<size_t>(id)] = true;
}

void Vocabulary::finish() {
  std::unordered_set<std::string_view> seen;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (!set_[id]) tokens_[id] = fmt::format("[PAD{}]", id);
    if (!seen.insert(tokens_[id]).second) refuse(fmt::format("token {} would be '{}' too", id, tokens_[id]));
  }
}

void Vocabulary::write(GgufWriter& writer) const {
  writer.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
  writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types_));
}

}  // namespace megalith::gguf_token
