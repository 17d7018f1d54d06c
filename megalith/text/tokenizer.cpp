#include "megalith/text/tokenizer.h"

#include <algorithm>
#include <deque>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/character_properties.h"
#include "megalith/text/sentencepiece_file.h"
#include "megalith/text/tiktoken_file.h"
#include "megalith/text/tokenizer_implementation.h"
#include "megalith/text/tokenizer_writer.h"

namespace megalith {

std::string Tokenizer::Implementation::spelling(int32_t id) const {
  const std::string_view bytes = pieces.bytes(id);
  return byte_level && !added[static_cast<size_t>(id)] ? spell_bytes(bytes) : std::string(bytes);
}

namespace {

bool continues_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// How many characters of white space (or plain spaces) a text begins and ends with.
std::pair<size_t, size_t> count_white_space(std::string_view text) {
  size_t leading = 0, trailing = 0;
  bool begun = true;
  for (size_t at = 0; at < text.size();) {
    const bool space = is_white_space(next_code_point(text, at));
    begun = begun && space;
    leading += begun ? 1 : 0;
    trailing = space ? trailing + 1 : 0;
  }
  return {leading, trailing};
}
std::pair<size_t, size_t> count_spaces(std::string_view text) {
  const size_t leading = std::min(text.find_first_not_of(' '), text.size());
  const size_t last = text.find_last_not_of(' ');
  return {leading, last == std::string_view::npos ? text.size() : text.size() - 1 - last};
}

// What is asked for: the caller's length, or what the file sets; nothing when neither holds.
std::optional<Truncation> truncation_of(const EncodeOptions& options,
                                        const TokenizerDescription& description) {
  std::optional<Truncation> truncation;
  if (options.truncate || options.max_tokens > 0) truncation = description.truncation;
  if (options.max_tokens == 0) return truncation;
  if (!truncation) truncation.emplace();
  truncation->maximum_length = static_cast<int64_t>(options.max_tokens);
  return truncation;
}

// Cuts ids (or spans) to what is left beside `added` more tokens.
template <class T>
void truncate(std::vector<T>& tokens, size_t begin, const std::optional<Truncation>& truncation,
              size_t added) {
  if (!truncation) return;
  const auto longest = static_cast<size_t>(truncation->maximum_length);
  const size_t room = longest > added ? longest - added : 0;
  const size_t count = tokens.size() - begin;
  if (count <= room) return;
  const auto first = tokens.begin() + static_cast<ptrdiff_t>(begin);
  const auto gone = static_cast<ptrdiff_t>(count - room);
  if (truncation->from_left) {
    tokens.erase(first, first + gone);
  } else {
    tokens.resize(begin + room);
  }
}

template <class T>
void pad(std::vector<T>& tokens, size_t begin, const Padding& padding, const T& filler) {
  size_t length = tokens.size() - begin;
  if (padding.fixed_length) length = std::max(length, static_cast<size_t>(*padding.fixed_length));
  const auto multiple = static_cast<size_t>(padding.multiple_of.value_or(1));
  if (multiple > 1) length = (length + multiple - 1) / multiple * multiple;
  const size_t missing = length - (tokens.size() - begin);
  const auto place = padding.on_left ? tokens.begin() + static_cast<ptrdiff_t>(begin) : tokens.end();
  tokens.insert(place, missing, filler);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Tokenizer Tokenizer::load(const std::filesystem::path& path, std::string_view pattern) {
  const MappedFile file(path);
  const std::string name = path.string();
  const std::string_view bytes = file.text();
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first == std::string_view::npos || bytes[first] == '{';
  if (!is_json && is_sentencepiece_model(bytes))
    return from_description(read_sentencepiece_model(bytes, name));
  if (!is_json && is_tiktoken_file(bytes)) {
    std::deque<std::string> storage;
    return from_description(read_tiktoken_file(bytes, pattern, name, storage));
  }
  check_input(pattern.empty(), "{}: only a tiktoken file needs a split pattern", name);
  return from_json(bytes, name);
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view name) {
  return Tokenizer(read_tokenizer_json(json, name));
}

Tokenizer Tokenizer::from_description(TokenizerDescription description) {
  return Tokenizer(build_tokenizer(std::move(description)));
}

const std::string& Tokenizer::to_json() const {
  std::call_once(implementation_->json_written, [&] {
    if (implementation_->json.empty()) implementation_->json = write_tokenizer_json(*implementation_);
  });
  return implementation_->json;
}

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file_atomic(path, to_json());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  return encode(text, EncodeOptions{.parse_special = parse_special});
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  encode_append(text, options, ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view text, const EncodeOptions& options,
                              std::vector<int32_t>& ids) const {
  const Implementation& parts = *implementation_;
  BorrowedScratch borrowed(parts.scratch_pool);
  EncodeScratch& scratch = *borrowed;
  const size_t begin = ids.size();
  if (options.add_special) ids.insert(ids.end(), parts.prefix_ids.begin(), parts.prefix_ids.end());
  const size_t text_begin = ids.size();
  if (!parts.added_token_finder.any(options.parse_special)) {
    parts.encode_ids(text, {}, options.parse_special, scratch, ids);
  } else {
    parts.split_added(text, options.parse_special, scratch.parts);
    for (const auto& part : scratch.parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        parts.encode_ids(text.substr(part.begin, part.end - part.begin), {.at_text_begin = part.begin == 0},
                         options.parse_special, scratch, ids);
      }
    }
  }
  parts.finish_ids(options, begin, text_begin, ids);
}

// Tokens with normalized on are looked for behind the normalizer, where there is one.
void Tokenizer::Implementation::split_added(std::string_view text, bool parse_special,
                                            std::vector<AddedTokenFinder::Part>& parts) const {
  if (normalizer.empty()) {
    added_token_finder.split(text, parse_special, parts);
  } else {
    added_token_finder.split_raw(text, parse_special, parts);
  }
}

void Tokenizer::Implementation::finish_ids(const EncodeOptions& options, size_t begin, size_t text_begin,
                                           std::vector<int32_t>& ids) const {
  const size_t around = options.add_special ? prefix_ids.size() + suffix_ids.size() : 0;
  truncate(ids, text_begin, truncation_of(options, description), around);
  if (options.add_special) ids.insert(ids.end(), suffix_ids.begin(), suffix_ids.end());
  if (options.pad && description.padding)
    megalith::pad(ids, begin, *description.padding, description.padding->id);
}

void Tokenizer::Implementation::trim_offsets(std::string_view text, std::vector<TokenSpan>& spans) const {
  for (const PostProcessorStep& step : description.post_processor) {
    const bool trims = step.kind == PostProcessorKind::byte_level || step.kind == PostProcessorKind::roberta;
    if (!trims || !step.trim_offsets) continue;
    for (size_t i = 0; i < spans.size(); ++i) {
      TokenSpan& span = spans[i];
      const bool literal = added[static_cast<size_t>(span.id)];
      // Of an added token the text that it has swallowed counts; of a piece, how it is spelled: a space is no
      // white space there, but it is told by its letter.
      const std::string_view token =
          literal ? text.substr(span.byte_begin, span.byte_end - span.byte_begin) : pieces.bytes(span.id);
      const auto [leading_spaces, trailing] =
          literal && is_valid_utf8(token) ? count_white_space(token) : count_spaces(token);
      size_t leading = leading_spaces;
      // A single space may be the one that was put before the text.
      if (leading == 1 && step.add_prefix_space && (i == 0 || span.byte_begin == 0)) leading = 0;
      for (; leading > 0 && span.byte_begin < span.byte_end; --leading) {
        do {
          ++span.byte_begin;
        } while (span.byte_begin < span.byte_end && continues_character(text, span.byte_begin));
      }
      for (size_t left = trailing; left > 0 && span.byte_end > span.byte_begin; --left) {
        do {
          --span.byte_end;
        } while (span.byte_end > span.byte_begin && continues_character(text, span.byte_end));
      }
    }
  }
}

std::vector<TokenSpan> Tokenizer::encode_with_offsets(std::string_view text,
                                                      const EncodeOptions& options) const {
  const Implementation& parts = *implementation_;
  BorrowedScratch borrowed(parts.scratch_pool);
  EncodeScratch& scratch = *borrowed;
  std::vector<TokenSpan> spans;
  parts.split_added(text, options.parse_special, scratch.parts);
  for (const auto& part : scratch.parts) {
    if (part.id >= 0) {
      spans.push_back({.id = part.id, .byte_begin = part.begin, .byte_end = part.end});
      continue;
    }
    parts.encode_spans(text.substr(part.begin, part.end - part.begin), {.at_text_begin = part.begin == 0},
                       options.parse_special, scratch, part.begin, spans);
  }
  parts.trim_offsets(text, spans);
  // Characters: bytes that continue a character do not count. A token that begins inside a character begins
  // with it.
  const auto continues = [&](size_t at) { return continues_character(text, at); };
  size_t at = 0, begun = 0;  // Characters that begin before byte `at`.
  const auto move_to = [&](size_t to) {
    for (; at < to; ++at) begun += continues(at) ? 0 : 1;
    for (; at > to; --at) begun -= continues(at - 1) ? 0 : 1;
  };
  for (TokenSpan& span : spans) {
    move_to(span.byte_begin);
    span.character_begin = begun - (continues(at) && begun > 0 && span.byte_end > span.byte_begin ? 1 : 0);
    move_to(span.byte_end);
    span.character_end = begun;
  }
  // Nothing of the text belongs to what stands around it.
  const TokenizerDescription& description = parts.description;
  const size_t around = options.add_special ? parts.prefix_ids.size() + parts.suffix_ids.size() : 0;
  truncate(spans, 0, truncation_of(options, description), around);
  if (options.add_special) {
    std::vector<TokenSpan> before;
    for (const int32_t id : parts.prefix_ids) before.push_back({.id = id});
    spans.insert(spans.begin(), before.begin(), before.end());
    for (const int32_t id : parts.suffix_ids) spans.push_back({.id = id});
  }
  if (options.pad && description.padding)
    megalith::pad(spans, 0, *description.padding, TokenSpan{.id = description.padding->id});
  return spans;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  check_input(has_id(id), "token id {} is not in the tokenizer (ids go from 0 to {})", id, vocab_size() - 1);
  return implementation_->pieces.bytes(id);
}

int64_t Tokenizer::vocab_size() const {
  return implementation_->pieces.size();
}

bool Tokenizer::has_id(int32_t id) const {
  return implementation_->pieces.has(id);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view content) const {
  const auto added = implementation_->added_by_content.find(content);
  if (added != implementation_->added_by_content.end()) return added->second;
  const int32_t piece = implementation_->pieces.find(content);
  if (piece < 0) return std::nullopt;
  return piece;
}

bool Tokenizer::is_special(int32_t id) const {
  return has_id(id) && implementation_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::end_of_document() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    const auto found = implementation_->added_by_content.find(name);
    if (found != implementation_->added_by_content.end()) return found->second;
  }
  return std::nullopt;
}

std::optional<int32_t> Tokenizer::beginning_of_text() const {
  if (implementation_->prefix_ids.empty()) return std::nullopt;
  return implementation_->prefix_ids.front();
}

}  // namespace megalith
