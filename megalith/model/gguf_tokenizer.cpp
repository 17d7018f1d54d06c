#include "megalith/model/gguf_tokenizer.h"

#include <cstring>
#include <deque>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/model/gguf_pre_tokenizers.h"
#include "megalith/text/tokenizer.h"
#include "megalith/text/tokenizer_description.h"

namespace megalith {

namespace {

using namespace gguf_token;

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

const GgufPreTokenizer& pre_tokenizer_of(const GgufFile& file) {
  const auto name = file.text("tokenizer.ggml.pre");
  check_input(
      name && !name->empty(),
      "{}: \"tokenizer.ggml.pre\" is missing, so it is not known how texts are cut into words; give the "
      "model's tokenizer.json with --tokenizer",
      file.path().string());
  std::string known;
  for (const GgufPreTokenizer& kind : gguf_pre_tokenizers()) {
    for (const std::string_view candidate : kind.names) {
      if (candidate == *name) return kind;
      known += (known.empty() ? "" : ", ") + std::string(candidate);
    }
  }
  fail_input("{}: \"tokenizer.ggml.pre\" = \"{}\" is not known; known are {}", file.path().string(), *name,
             known);
}

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file), path_(file.path().string()), out_{.name = path_} {
    const auto tokens = file.strings("tokenizer.ggml.tokens");
    check_input(tokens.has_value(), "{}: tokenizer.ggml.tokens is missing", path_);
    tokens_ = *tokens;
    types_ = file.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>{});
    check_input(types_.empty() || types_.size() == tokens_.size(), "{}: {} tokens have {} token types", path_,
                tokens_.size(), types_.size());
    out_.model.vocabulary_element = path_ + ": tokenizer.ggml.tokens";
    out_.model.merges_element = path_ + ": tokenizer.ggml.merges";
    out_.model.unknown_element = path_ + ": tokenizer.ggml.unknown_token_id";
    for (size_t id = 0; id < tokens_.size(); ++id) {
      check_input(is_valid_utf8(tokens_[id]), "{}: token {} is not valid UTF-8", path_, id);
      check_input(type(id) >= kNormal && type(id) <= kByte, "{}: token {} has the unknown type {}", path_, id,
                  type(id));
    }
  }

  Tokenizer read_byte_level(const GgufPreTokenizer& kind) {
    const auto merges = file_.strings("tokenizer.ggml.merges");
    check_input(merges.has_value(), "{}: tokenizer.ggml.merges is missing", path_);
    out_.pre_tokenizer = kind.steps;
    out_.model.ignore_merges = kind.ignore_merges;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (type(id) == kNormal || type(id) == kByte)
        out_.model.pieces.push_back({.text = tokens_[id], .id = static_cast<int32_t>(id)});
    }
    add_added_tokens();
    out_.model.merges.reserve(merges->size());
    for (const std::string_view merge : *merges) {
      const size_t space = merge.find(' ', 1);
      check_input(space != std::string_view::npos, "{}[{}]: expected two pieces and one space between them",
                  out_.model.merges_element, out_.model.merges.size());
      out_.model.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    out_.decoder.push_back({.kind = DecoderKind::byte_level});
    // llama.cpp puts the first token before every text of a Llama 3 model unless the file says otherwise.
    add_template(affix("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", kind.add_bos),
                 kind.add_separator
                     ? affix("tokenizer.ggml.add_sep_token", "tokenizer.ggml.seperator_token_id", true)
                     : affix("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false));
    return Tokenizer::from_description(std::move(out_));
  }

  Tokenizer read_sentencepiece() {
    const GgufValue* const scores = file_.find("tokenizer.ggml.scores");
    const GgufArray* const array = scores == nullptr ? nullptr : std::get_if<GgufArray>(&scores->value);
    check_input(array != nullptr && array->element == GgufValueType::f32 && array->count == tokens_.size(),
                "{}: tokenizer.ggml.scores is missing, or not a number for each of the {} tokens", path_,
                tokens_.size());
    ModelStep& model = out_.model;
    model.kind = ModelKind::scored_bpe;
    model.byte_fallback = true;
    model.fuse_unknown = true;
    model.unknown_id = file_.integer("tokenizer.ggml.unknown_token_id").value_or(0);
    check_input(*model.unknown_id >= 0 && *model.unknown_id < static_cast<int64_t>(tokens_.size()),
                "{} = {} is no token", model.unknown_element, *model.unknown_id);
    user_defined_in_text_ = file_.boolean(kGgufUserDefinedInTextKey).value_or(false);
    model.as_sentencepiece = user_defined_in_text_;
    model.pieces.reserve(tokens_.size());
    for (size_t id = 0; id < tokens_.size(); ++id) {
      // To SentencePiece unused pieces are some that are made and taken apart again, not names for nothing.
      if (user_defined_in_text_ && type(id) == kUnused) continue;
      float score = 0;
      std::memcpy(&score, array->numbers + id * sizeof(float), sizeof(float));
      model.pieces.push_back(
          {.text = tokens_[id], .id = static_cast<int32_t>(id), .score = score, .kind = kind(id)});
    }
    add_added_tokens();
    const bool prefix = file_.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    if (user_defined_in_text_) {
      NormalizerStep normalizer{.kind = NormalizerKind::sentencepiece,
                                .element = path_,
                                .add_dummy_prefix = prefix,
                                .escape_whitespaces = true};
      for (size_t id = 0; id < tokens_.size(); ++id) {
        if (type(id) == kUserDefined) normalizer.protected_texts.emplace_back(tokens_[id]);
      }
      out_.normalizer.push_back(std::move(normalizer));
    } else {
      if (prefix)
        out_.normalizer.push_back({.kind = NormalizerKind::prepend, .content = std::string(kSpaceSymbol)});
      out_.normalizer.push_back(
          {.kind = NormalizerKind::replace, .pattern = {" ", false}, .content = std::string(kSpaceSymbol)});
    }
    out_.decoder.push_back(
        {.kind = DecoderKind::replace, .pattern = {std::string(kSpaceSymbol), false}, .content = " "});
    out_.decoder.push_back({.kind = DecoderKind::byte_fallback});
    out_.decoder.push_back({.kind = DecoderKind::fuse});
    if (prefix) out_.decoder.push_back({.kind = DecoderKind::strip, .character = " ", .start = 1});
    add_template(affix("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", true),
                 affix("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false));
    return Tokenizer::from_description(std::move(out_));
  }

  // The file marks what begins a word, where the vocabulary of the model marked what continues one.
  Tokenizer read_word_piece() {
    ModelStep& model = out_.model;
    model.kind = ModelKind::word_piece;
    model.continuing_prefix = "##";
    // llama.cpp gives no word up for its length; the key is our own.
    model.maximum_word_characters = file_.integer(kGgufLongestWordKey).value_or(int64_t{1} << 40);
    const int64_t unknown = file_.integer("tokenizer.ggml.unknown_token_id").value_or(100);
    check_input(unknown >= 0 && unknown < static_cast<int64_t>(tokens_.size()), "{} = {} is no token",
                model.unknown_element, unknown);
    std::deque<std::string> texts;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string_view token = tokens_[id];
      const bool bracketed = token.size() > 1 && token.front() == '[' && token.back() == ']';
      if (token.starts_with(kSpaceSymbol)) {
        texts.emplace_back(token.substr(kSpaceSymbol.size()));
      } else {
        texts.emplace_back(bracketed || type(id) != kNormal ? std::string(token) : "##" + std::string(token));
      }
      if (type(id) == kUnused) continue;
      model.pieces.push_back({.text = texts.back(), .id = static_cast<int32_t>(id)});
    }
    model.unknown_token = texts[static_cast<size_t>(unknown)];
    add_added_tokens();
    out_.normalizer.push_back({.kind = NormalizerKind::bert});
    out_.pre_tokenizer.push_back({.kind = PreTokenizerKind::bert});
    out_.decoder.push_back({.kind = DecoderKind::word_piece, .cleanup = false});
    const char* const first = file_.integer("tokenizer.ggml.cls_token_id") ? "tokenizer.ggml.cls_token_id"
                                                                           : "tokenizer.ggml.bos_token_id";
    add_template(affix("tokenizer.ggml.add_bos_token", first, true),
                 affix("tokenizer.ggml.add_sep_token", "tokenizer.ggml.seperator_token_id", true));
    return Tokenizer::from_description(std::move(out_));
  }

 private:
  using Affix = std::optional<std::pair<int32_t, std::string>>;

  int64_t type(size_t id) const { return types_.empty() ? int64_t{kNormal} : types_[id]; }
  PieceKind kind(size_t id) const {
    constexpr PieceKind kinds[] = {PieceKind::normal,       PieceKind::unknown, PieceKind::control,
                                   PieceKind::user_defined, PieceKind::unused,  PieceKind::byte};
    return kinds[type(id) - 1];
  }

  void add_added_tokens() {
    // As llama.cpp has it, Phi-3's special tokens swallow the white space behind them, but for these.
    std::string model_name(file_.text("general.name").value_or(""));
    for (char& c : model_name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    const bool phi3 =
        model_name.find("phi-3") != std::string::npos || model_name.find("phi3") != std::string::npos;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const int64_t token_type = type(id);
      if (token_type != kControl && token_type != kUserDefined && token_type != kUnknown) continue;
      if (tokens_[id].empty() || (token_type == kUserDefined && user_defined_in_text_)) continue;
      const std::string_view text = tokens_[id];
      out_.added_tokens.push_back(
          {.content = std::string(text),
           .id = static_cast<int32_t>(id),
           .special = token_type != kUserDefined,
           .rstrip = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>"});
    }
  }

  Affix affix(const char* flag, const char* id_key, bool absent) const {
    const auto id = file_.integer(id_key);
    if (!file_.boolean(flag).value_or(absent) || !id) return std::nullopt;
    check_input(*id >= 0 && *id < static_cast<int64_t>(tokens_.size()), "{}: \"{}\" = {} is no token", path_,
                id_key, *id);
    return std::pair(static_cast<int32_t>(*id), std::string(tokens_[static_cast<size_t>(*id)]));
  }

  void add_template(const Affix& before, const Affix& after) {
    if (!before && !after) return;
    PostProcessorStep step{.element = path_};
    if (before) step.before.push_back({before->second, {before->first}, {before->second}});
    if (after) step.after.push_back({after->second, {after->first}, {after->second}});
    out_.post_processor.push_back(std::move(step));
  }

  const GgufFile& file_;
  std::string path_;
  TokenizerDescription out_;
  bool user_defined_in_text_ = false;
  std::span<const std::string_view> tokens_;
  std::vector<int64_t> types_;
};

}  // namespace

std::optional<Tokenizer> tokenizer_from_gguf(const GgufFile& file) {
  const auto model = file.text("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab") return std::nullopt;
  if (*model == "gpt2") {
    const GgufPreTokenizer& kind = pre_tokenizer_of(file);
    return Reader(file).read_byte_level(kind);
  }
  if (*model == "llama") return Reader(file).read_sentencepiece();
  if (*model == "bert") return Reader(file).read_word_piece();
  fail_input(
      "{}: \"tokenizer.ggml.model\" = \"{}\" is not supported; \"gpt2\" (byte-level BPE), \"llama\" "
      "(SentencePiece) and "
      "\"bert\" (WordPiece) are",
      file.path().string(), *model);
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

}  // namespace megalith
