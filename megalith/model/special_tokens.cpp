#include "megalith/model/special_tokens.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace megalith {

namespace {

void note(std::string_view content, int64_t id, SpecialTokenIds& ids) {
  for (const std::string_view name : {"<|endoftext|>", "<s>", "<|begin_of_text|>", "<bos>"}) {
    if (content == name) ids.beginning_of_text = id;
  }
  for (const std::string_view name : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"}) {
    if (content == name) ids.end_of_text = id;
  }
}

}  // namespace

SpecialTokenIds special_token_ids(const std::string& tokenizer_json) {
  SpecialTokenIds ids;
  const auto json = nlohmann::json::parse(tokenizer_json, nullptr, false);
  if (!json.is_object() || !json.contains("added_tokens") || !json["added_tokens"].is_array()) return ids;
  for (const auto& token : json["added_tokens"]) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) continue;
    if (!token.contains("id") || !token["id"].is_number_integer()) continue;
    note(token["content"].get_ref<const std::string&>(), token["id"].get<int64_t>(), ids);
  }
  return ids;
}

SpecialTokenIds special_token_ids(std::span<const AddedToken> added_tokens) {
  SpecialTokenIds ids;
  for (const AddedToken& token : added_tokens) note(token.content, token.id, ids);
  return ids;
}

}  // namespace megalith
