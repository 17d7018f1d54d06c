// WordPiece into GGUF.
#include <algorithm>
#include <limits>

#include "megalith/base/error.h"
#include "megalith/model/gguf_vocabulary.h"

namespace megalith::gguf_token {

namespace {

bool is_bracketed(std::string_view text) {
  return text.size() > 1 && text.front() == '[' && text.back() == ']';
}

// A word that the pre-tokenizer would cut is no word.
bool could_be_word(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return (c >= 0 && c <= ' ') || (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  });
}

}  // namespace

// WordPiece: the file marks what begins a word, where the vocabulary marks what continues one.
void add_word_piece(const Tokenizer& tokenizer, int64_t vocabulary, const std::vector<int32_t>& end_of_text,
                    GgufWriter& writer) {
  const Parts& parts = tokenizer.implementation();
  const TokenizerDescription& description = parts.description;
  const ModelStep& model = description.model;
  const std::vector<NormalizerStep>& normalizer = description.normalizer;
  if (normalizer.empty()) refuse("it has no BertNormalizer");
  for (const NormalizerStep& step : normalizer) {
    if (step.kind != NormalizerKind::bert || normalizer.size() > 1)
      refuse_step(step.element, "there is room for one BertNormalizer alone");
    if (!step.lowercase) refuse_step(step.element, "its lowercase is off");
    if (!step.strip_accents.value_or(true)) refuse_step(step.element, "its strip_accents is off");
    if (!step.clean_text) refuse_step(step.element, "its clean_text is off");
    if (!step.handle_chinese_chars) refuse_step(step.element, "its handle_chinese_chars is off");
  }
  const std::vector<PreTokenizerStep>& pre_tokenizer = description.pre_tokenizer;
  if (pre_tokenizer.size() != 1 || pre_tokenizer[0].kind != PreTokenizerKind::bert) {
    refuse_step(pre_tokenizer.empty() ? std::string() : pre_tokenizer[0].element,
                "its pre_tokenizer is not a BertPreTokenizer");
  }
  if (model.continuing_prefix != "##") refuse("its continuing_subword_prefix is not \"##\"");
  const int32_t unknown = parts.pieces.find(model.unknown_token.value_or(""));
  if (unknown < 0) refuse(fmt::format("{}: it is not in the vocabulary", model.unknown_element));

  Vocabulary written(vocabulary);
  for (const VocabularyPiece& piece : parts.piece_info) {
    if (parts.added[static_cast<size_t>(piece.id)]) continue;
    const std::string_view text = parts.pieces.bytes(piece.id);
    const bool continues = text.starts_with("##");
    const std::string phantom =
        continues ? std::string(text.substr(2)) : std::string(kSpaceSymbol).append(text);
    if (phantom.empty() || (continues && (is_bracketed(phantom) || phantom.starts_with(kSpaceSymbol))))
      refuse(fmt::format("token {} ('{}') has no spelling there", piece.id, text));
    written.set(piece.id, phantom, kNormal);
  }
  for (const AddedToken& token : description.added_tokens) {
    check_plain(token);
    if (token.normalized)
      refuse(fmt::format("added token '{}' is looked for in normalised text", token.content));
    const bool is_piece = parts.pieces.find(token.content) == token.id;
    if (token.content.starts_with(kSpaceSymbol) ||
        (!is_piece && (could_be_word(token.content) || token.content.starts_with("##"))))
      refuse(fmt::format("added token '{}' would be a piece of words", token.content));
    const Type special = token.id == unknown ? kUnknown : kControl;
    written.set(token.id, token.content, token.special ? special : kUserDefined);
  }
  written.finish();

  const Affixes affixes(parts);
  const auto named = [&](const char* name) { return int64_t{tokenizer.id_of(name).value_or(-1)}; };
  const int64_t first = affixes.before >= 0 ? affixes.before : named("[CLS]");
  writer.add("tokenizer.ggml.model", "bert");
  written.write(writer);
  add_id("tokenizer.ggml.bos_token_id", first, writer);
  add_id("tokenizer.ggml.cls_token_id", first, writer);
  add_id("tokenizer.ggml.seperator_token_id", affixes.after >= 0 ? affixes.after : named("[SEP]"), writer);
  add_id("tokenizer.ggml.unknown_token_id", unknown, writer);
  add_id("tokenizer.ggml.padding_token_id", named("[PAD]"), writer);
  add_id("tokenizer.ggml.mask_token_id", named("[MASK]"), writer);
  add_end_ids(end_of_text, writer);
  writer.add("tokenizer.ggml.add_bos_token", affixes.before >= 0);
  writer.add("tokenizer.ggml.add_sep_token", affixes.after >= 0);
  if (model.maximum_word_characters <= std::numeric_limits<uint32_t>::max())
    writer.add(kGgufLongestWordKey, static_cast<uint32_t>(model.maximum_word_characters));
}

}  // namespace megalith::gguf_token
