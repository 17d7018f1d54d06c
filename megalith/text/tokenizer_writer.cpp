#include "megalith/text/tokenizer_writer.h"

#include <nlohmann/json.hpp>

#include "megalith/text/byte_alphabet.h"
#include "megalith/text/split_pattern.h"

namespace megalith {

std::string write_tokenizer_json(const ByteLevelVocabulary& vocabulary) {
  using json = nlohmann::ordered_json;
  const auto byte_level = [](bool use_regex) {
    return json{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
  };
  json pre_tokenizer = byte_level(true);
  if (vocabulary.pattern != "gpt2") {
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", split_pattern(vocabulary.pattern)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", json::array({split, byte_level(false)})}};
  }
  json added = json::array();
  for (size_t id = 0; id < vocabulary.special_tokens.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", vocabulary.special_tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // Vocabulary and merges are written one entry a line: an object of the library's ordered kind would look
  // every key up in a list.
  const auto spell = [&](size_t id) {
    return id < vocabulary.special_tokens.size()
               ? vocabulary.special_tokens[id]
               : spell_bytes(vocabulary.pieces[id - vocabulary.special_tokens.size()]);
  };
  const auto quoted = [&](size_t id) { return json(spell(id)).dump(); };
  std::string out =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": ";
  out += added.dump() + ",\n  \"normalizer\": null,\n  \"pre_tokenizer\": " + pre_tokenizer.dump();
  out += ",\n  \"post_processor\": null,\n  \"decoder\": " + byte_level(true).dump();
  out +=
      ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": "
      "false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {";
  const size_t ids = vocabulary.special_tokens.size() + vocabulary.pieces.size();
  for (size_t id = 0; id < ids; ++id) {
    out += (id == 0 ? "\n      " : ",\n      ") + quoted(id) + ": " + std::to_string(id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const auto [left, right] = vocabulary.merges[i];
    out += (i == 0 ? "\n      [" : ",\n      [") + quoted(static_cast<size_t>(left)) + ", " +
           quoted(static_cast<size_t>(right)) + "]";
  }
  out += "\n    ]\n  }\n}\n";
  return out;
}

}  // namespace megalith
