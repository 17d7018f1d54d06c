#include "megalith/model/gguf_tokenizer.h"

#include <nlohmann/json.hpp>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/special_tokens.h"
#include "megalith/text/split_pattern.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// tokenizer.ggml.token_type
enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

Json byte_level(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}
Json split_then_bytes(std::string_view pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", std::string(pattern)}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            byte_level(false)}}};
}
Json digits_then_bytes() {
  return {{"type", "Sequence"},
          {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}}};
}

// The names that llama.cpp gives to pre-tokenizers; the first name of a kind is the one written.
struct PreTokenizerKind {
  std::vector<std::string_view> names;
  Json json;
  bool ignore_merges;
};

const std::vector<PreTokenizerKind>& pre_tokenizer_kinds() {
  static const std::vector<PreTokenizerKind> kinds = {
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "mellum"},
       byte_level(true),
       false},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"}, split_then_bytes(kLlama3Pattern), true},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       digits_then_bytes(),
       false},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"}, split_then_bytes(split_pattern("qwen2")), false},
  };
  return kinds;
}

const PreTokenizerKind& kind_of(const GgufFile& file) {
  const auto name = file.text("tokenizer.ggml.pre");
  check_input(
      name && !name->empty(),
      "{}: \"tokenizer.ggml.pre\" is missing, so it is not known how texts are cut into words; give the "
      "model's tokenizer.json with --tokenizer",
      file.path().string());
  std::string known;
  for (const PreTokenizerKind& kind : pre_tokenizer_kinds()) {
    for (const std::string_view candidate : kind.names) {
      if (candidate == *name) return kind;
      known += (known.empty() ? "" : ", ") + std::string(candidate);
    }
  }
  fail_input("{}: \"tokenizer.ggml.pre\" = \"{}\" is not known; known are {}", file.path().string(), *name,
             known);
}

Json template_of(const std::vector<std::pair<int64_t, std::string>>& before,
                 const std::vector<std::pair<int64_t, std::string>>& after) {
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](const std::pair<int64_t, std::string>& token) {
    single.push_back({{"SpecialToken", {{"id", token.second}, {"type_id", 0}}}});
    tokens[token.second] = {{"id", token.second}, {"ids", {token.first}}, {"tokens", {token.second}}};
  };
  for (const auto& token : before) add(token);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const auto& token : after) add(token);
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

// The text of invalid UTF-8 has no place in JSON.
bool is_json_text(std::string_view text) {
  try {
    (void)Json(std::string(text)).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace

std::string tokenizer_json_from_gguf(const GgufFile& file) {
  const std::string path = file.path().string();
  const auto model = file.text("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab") return {};
  check_input(*model == "gpt2",
              "{}: \"tokenizer.ggml.model\" = \"{}\" is not supported; \"gpt2\" (byte-level BPE) is", path,
              *model);
  const PreTokenizerKind& kind = kind_of(file);
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  const auto merges = file.strings("tokenizer.ggml.merges");
  const auto types = file.integers("tokenizer.ggml.token_type");
  check_input(tokens && merges, "{}: tokenizer.ggml.tokens or tokenizer.ggml.merges is missing", path);
  check_input(!types || types->size() == tokens->size(), "{}: {} tokens have {} token types", path,
              tokens->size(), types ? types->size() : 0);
  Json vocabulary = Json::object(), added = Json::array();
  for (size_t id = 0; id < tokens->size(); ++id) {
    const std::string text((*tokens)[id]);
    check_input(is_json_text(text), "{}: token {} is not valid UTF-8", path, id);
    const int64_t type = types ? (*types)[id] : kNormal;
    if (type == kNormal || type == kByte) {
      const auto [at, fresh] = vocabulary.emplace(text, id);
      check_input(fresh, "{}: tokens {} and {} have the same text", path, at.value().get<size_t>(), id);
    } else if (type == kControl || type == kUserDefined || type == kUnknown) {
      added.push_back({{"id", id},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type != kUserDefined}});
    } else {
      check_input(type == kUnused, "{}: token {} has the unknown type {}", path, id, type);
    }
  }
  Json merge_list = Json::array();
  for (const std::string_view merge : *merges) {
    check_input(is_json_text(merge), "{}: merge {} is not valid UTF-8", path, merge_list.size());
    merge_list.push_back(std::string(merge));
  }
  Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", kind.json},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", kind.ignore_merges},
        {"vocab", vocabulary},
        {"merges", merge_list}}}};
  const auto affix = [&](const char* flag, const char* id_key, bool absent) {
    std::vector<std::pair<int64_t, std::string>> result;
    const auto id = file.integer(id_key);
    if (!file.boolean(flag).value_or(absent) || !id) return result;
    check_input(*id >= 0 && *id < static_cast<int64_t>(tokens->size()), "{}: \"{}\" = {} is no token", path,
                id_key, *id);
    result.emplace_back(*id, std::string((*tokens)[static_cast<size_t>(*id)]));
    return result;
  };
  // llama.cpp puts the first token before every text of a Llama 3 model unless the file says otherwise.
  const auto before =
      affix("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", kind.ignore_merges);
  const auto after = affix("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false);
  if (!before.empty() || !after.empty()) json["post_processor"] = template_of(before, after);
  return json.dump();
}

std::vector<int32_t> end_of_text_ids(const GgufFile& file) {
  std::vector<int32_t> ids;
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto id = file.integer(key);
    if (id && *id >= 0 && *id < (int64_t{1} << 31)) ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

namespace {

[[noreturn]] void refuse(const std::string& what) {
  fail_input("GGUF cannot hold this tokenizer: {}", what);
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

// What stands before and after a text; negative for nothing.
struct Affixes {
  int64_t before = -1, after = -1;
};

void read_affixes(const Json& post, Affixes& affixes) {
  if (post.is_null() || post.at("type") == "ByteLevel") return;
  if (post.at("type") == "Sequence") {
    for (const Json& step : post.at("processors")) read_affixes(step, affixes);
    return;
  }
  bool text = false;
  for (const Json& part : post.at("single")) {
    if (part.contains("Sequence")) {
      text = true;
      continue;
    }
    const Json& ids =
        post.at("special_tokens").at(part.at("SpecialToken").at("id").get<std::string>()).at("ids");
    int64_t& side = text ? affixes.after : affixes.before;
    if (side >= 0 || ids.size() != 1) refuse("it puts more than one token before or after a text");
    side = ids.at(0).get<int64_t>();
  }
}

void add_special_ids(const Json& json, SpecialTokenIds named, const std::vector<int32_t>& end_of_text,
                     GgufWriter& writer) {
  constexpr const char* kEndKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
  Affixes affixes;
  read_affixes(json.value("post_processor", Json()), affixes);
  std::vector<int32_t> ends = end_of_text;
  if (ends.empty() && affixes.after >= 0) ends.push_back(static_cast<int32_t>(affixes.after));
  if (ends.empty() && named.end_of_text >= 0) ends.push_back(static_cast<int32_t>(named.end_of_text));
  if (ends.size() > std::size(kEndKeys))
    refuse(fmt::format("{} tokens end a text; it has room for 3", ends.size()));
  if (affixes.after >= 0 && affixes.after != ends.front()) {
    refuse(fmt::format("token {} stands after a text, but token {} ends one", affixes.after, ends.front()));
  }
  const int64_t begin = affixes.before >= 0 ? affixes.before : named.beginning_of_text;
  if (begin >= 0) writer.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(begin));
  for (size_t i = 0; i < ends.size(); ++i) writer.add(kEndKeys[i], static_cast<uint32_t>(ends[i]));
  writer.add("tokenizer.ggml.add_bos_token", affixes.before >= 0);
  writer.add("tokenizer.ggml.add_eos_token", affixes.after >= 0);
}

}  // namespace

void add_tokenizer_to_gguf(const std::string& tokenizer_json, int64_t vocabulary,
                           const std::vector<int32_t>& end_of_text, GgufWriter& writer) {
  const Tokenizer checked = Tokenizer::from_json(tokenizer_json);  // its form is right from here on
  const Json json = Json::parse(tokenizer_json);
  const Json& model = json["model"];
  const PreTokenizerKind* kind = nullptr;
  for (const PreTokenizerKind& candidate : pre_tokenizer_kinds()) {
    if (essence(candidate.json) == essence(json["pre_tokenizer"])) kind = &candidate;
  }
  if (kind == nullptr) refuse("its pre-tokenizer has no name there");
  check_merges_may_be(json, kind->ignore_merges);
  std::vector<std::string> tokens(static_cast<size_t>(vocabulary));
  std::vector<int32_t> types(static_cast<size_t>(vocabulary), kUnused);
  const auto set = [&](int64_t id, const std::string& text, int32_t type) {
    if (id >= vocabulary) refuse(fmt::format("id {} lies outside the model's {} tokens", id, vocabulary));
    tokens[static_cast<size_t>(id)] = text;
    types[static_cast<size_t>(id)] = type;
  };
  for (const auto& [text, id] : model.at("vocab").items()) set(id.get<int64_t>(), text, kNormal);
  std::vector<std::string> merges;
  std::set<std::string> joined;
  for (const Json& merge : model.at("merges")) {
    merges.push_back(merge.is_array() ? merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>()
                                      : merge.get<std::string>());
    const size_t space = merges.back().find(' ');
    joined.insert(merges.back().substr(0, space) + merges.back().substr(space + 1));
  }
  for (const Json& token : json.value("added_tokens", Json::array())) {
    const int64_t id = token.at("id").get<int64_t>();
    const std::string content = token.at("content").get<std::string>();
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (token.value(flag, false)) refuse(fmt::format("added token '{}' has {}", content, flag));
    }
    if (joined.contains(content)) refuse(fmt::format("added token '{}' is a result of merges too", content));
    set(id, content, token.value("special", false) ? kControl : kUserDefined);
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] == kUnused) tokens[id] = fmt::format("[PAD{}]", id);
  }
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", kind->names.front());
  writer.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
  writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  writer.add("tokenizer.ggml.merges", std::span<const std::string>(merges));
  add_special_ids(json, special_token_ids(tokenizer_json), end_of_text, writer);
}

}  // namespace megalith
