// Byte-level BPE into GGUF.
#include <nlohmann/json.hpp>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/gguf_pre_tokenizers.h"
#include "megalith/model/gguf_vocabulary.h"

namespace megalith::gguf_token {

namespace {

using Json = nlohmann::json;

Json json_of(const std::vector<PreTokenizerStep>& steps) {
  Json list = Json::array();
  for (const PreTokenizerStep& step : steps) {
    if (step.kind == PreTokenizerKind::split) {
      list.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", step.pattern.text}}},
                      {"behavior", "Isolated"},
                      {"invert", step.invert}});
    } else if (step.kind == PreTokenizerKind::digits) {
      list.push_back({{"type", "Digits"}, {"individual_digits", step.individual_digits}});
    } else {
      list.push_back({{"type", "ByteLevel"},
                      {"add_prefix_space", step.add_prefix_space},
                      {"use_regex", step.use_regex}});
    }
  }
  if (list.size() == 1) return list[0];
  return {{"type", "Sequence"}, {"pretokenizers", list}};
}

// A pre-tokenizer with its defaults filled in and without what only concerns offsets.
Json essence(Json pre) {
  const auto normalize = [](Json& step) {
    step.erase("trim_offsets");
    if (step.value("type", "") == "ByteLevel" && !step.contains("use_regex")) step["use_regex"] = true;
  };
  if (!pre.is_object()) return pre;
  normalize(pre);
  if (pre.contains("pretokenizers")) {
    for (Json& step : pre["pretokenizers"]) normalize(step);
  }
  return pre;
}

// llama.cpp derives ignore_merges from the pre-tokenizer's name. Where the file says otherwise, it may make
// no difference: it does when a piece's own merges do not lead to it.
void check_merges_may_be(const Json& json, bool ignored) {
  if (json["model"].value("ignore_merges", false) == ignored) return;
  Json other = json;
  other["model"]["ignore_merges"] = ignored;
  const Tokenizer stated = Tokenizer::from_json(json.dump()), implied = Tokenizer::from_json(other.dump());
  for (int64_t id = 0; id < stated.vocab_size(); ++id) {
    if (!stated.has_id(static_cast<int32_t>(id))) continue;
    const std::string_view text = stated.token_bytes(static_cast<int32_t>(id));
    if (stated.encode(text) != implied.encode(text)) {
      refuse(fmt::format("its ignore_merges is {}, with which token {} is encoded otherwise", !ignored, id));
    }
  }
}

}  // namespace

void add_byte_level(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                    GgufWriter& writer) {
  const Json json = Json::parse(tokenizer.to_json());
  const Parts& parts = tokenizer.implementation();
  if (!parts.description.normalizer.empty())
    refuse_step(parts.description.normalizer[0].element, "it normalises texts");
  const GgufPreTokenizer* kind = nullptr;
  for (const GgufPreTokenizer& candidate : gguf_pre_tokenizers()) {
    if (essence(json_of(candidate.steps)) == essence(json.value("pre_tokenizer", Json())) && kind == nullptr)
      kind = &candidate;
  }
  if (kind == nullptr) refuse("its pre-tokenizer has no name there");
  check_merges_may_be(json, kind->ignore_merges);
  Vocabulary written(vocabulary);
  const Json& model = json.at("model");
  for (const auto& [text, id] : model.at("vocab").items()) written.set(id.get<int64_t>(), text, kNormal);
  std::vector<std::string> merges;
  std::set<std::string> joined;
  for (const Json& merge : model.at("merges")) {
    merges.push_back(merge.is_array() ? merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>()
                                      : merge.get<std::string>());
    const size_t space = merges.back().find(' ');
    joined.insert(merges.back().substr(0, space) + merges.back().substr(space + 1));
  }
  for (const AddedToken& token : parts.description.added_tokens) {
    check_plain(token);
    if (joined.contains(token.content))
      refuse(fmt::format("added token '{}' is a result of merges too", token.content));
    written.set(token.id, token.content, token.special ? kControl : kUserDefined);
  }
  written.finish();
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", kind->names.front());
  written.write(writer);
  writer.add("tokenizer.ggml.merges", std::span<const std::string>(merges));
  add_special_ids(parts, end_of_text, writer);
}

}  // namespace megalith::gguf_token
