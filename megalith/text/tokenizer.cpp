#include "megalith/text/tokenizer.h"

#include <algorithm>
#include <deque>
#include <exception>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/character_properties.h"
#include "megalith/text/sentencepiece_file.h"
#include "megalith/text/tiktoken_file.h"
#include "megalith/text/tokenizer_implementation.h"
#include "megalith/text/tokenizer_writer.h"

namespace megalith {

std::unique_ptr<EncodeScratch> ScratchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<EncodeScratch>();
}

void ScratchPool::give_back(std::unique_ptr<EncodeScratch> scratch) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

namespace {

class Borrowed {
 public:
  explicit Borrowed(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  ~Borrowed() { pool_.give_back(std::move(scratch_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  EncodeScratch& operator*() { return *scratch_; }

 private:
  ScratchPool& pool_;
  std::unique_ptr<EncodeScratch> scratch_;
};

// Texts are split and encoded in stretches of about this size, so that the bounds of pieces stay in the
// cache.
constexpr size_t kStretchBytes = 64 * 1024;

}  // namespace

template <bool Offsets, class Origin, class OnToken>
void Tokenizer::Implementation::encode_pieces(std::string_view text, EncodeScratch& scratch,
                                              std::vector<int32_t>& ids, const Origin& origin,
                                              const OnToken& on_token) const {
  const char* const text_end = text.data() + text.size();
  size_t begin = 0;
  for (const size_t marked : scratch.ends) {
    const size_t end = end_of(marked);
    const std::string_view piece(text.data() + begin, end - begin);
    const size_t piece_begin = begin;
    begin = end;
    if (is_dropped(marked)) continue;
    const size_t first = ids.size();
    if constexpr (Offsets) {
      scratch.ranges.clear();
      model->encode(piece, scratch.model, ids, &scratch.ranges);
      for (size_t i = first; i < ids.size(); ++i) {
        const TokenRange range = scratch.ranges[i - first];
        const auto [from, to] = origin(piece_begin + range.begin, piece_begin + range.end);
        on_token(ids[i], from, to);
      }
      continue;
    }
    if (piece.size() > WordCache::kMaximumBytes) {
      model->encode(piece, scratch.model, ids, nullptr);
      continue;
    }
    const auto key = WordCache::make_key(piece, static_cast<size_t>(text_end - piece.data()));
    WordCache::Slot& slot = scratch.cache.slot(key);
    if (slot.holds(key)) [[likely]] {
      if (slot.count == 1) {
        ids.push_back(slot.ids[0]);
      } else {
        ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
      }
      continue;
    }
    model->encode(piece, scratch.model, ids, nullptr);
    const size_t count = ids.size() - first;
    if (count > WordCache::kMaximumIds) continue;
    slot.low = key.low;
    slot.high = key.high;
    slot.length = key.length;
    slot.count = static_cast<uint8_t>(count);
    std::copy(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), slot.ids);
  }
}

template <bool Offsets, class OnToken>
void Tokenizer::Implementation::encode_valid(std::string_view text, size_t base, PartPlace place,
                                             bool parse_special, EncodeScratch& scratch,
                                             std::vector<int32_t>& ids, const OnToken& on_token) const {
  const bool prefix = pre_tokenizer.add_prefix_space() && place.at_begin;
  const bool finds_normalized = !normalizer.empty() && added_token_finder.any_normalized(parse_special);
  if (!prefix && !finds_normalized && pre_tokenizer.only_splits() && normalizer.surely_keeps(text)) {
    pre_tokenizer.split(text, scratch.ends, scratch.other_ends);
    encode_pieces<Offsets>(
        text, scratch, ids,
        [&](size_t begin, size_t end) {
          return OriginalRange{base + begin, base + end};
        },
        on_token);
    return;
  }
  AlignedText& whole = scratch.normalized;
  // A pre-tokenizer may ask whether a part begins where the text does, which a normalizer can change.
  const bool asks_begin = place.at_text_begin && pre_tokenizer.asks_for_begin() && !normalizer.empty();
  whole.assign(text, Offsets || asks_begin);
  normalizer.apply(whole, scratch.other, place);
  if (asks_begin && !whole.origins.empty()) place.at_text_begin = whole.origins.front().begin == 0;
  const auto encode_here = [&](AlignedText& part, PartPlace where) {
    if (prefix && where.at_begin && !part.bytes.empty() && part.bytes[0] != ' ') {
      scratch.other.clear_like(part);
      scratch.other.put(" ", part, 0);
      scratch.other.copy(part, 0, part.bytes.size());
      part.swap(scratch.other);
    }
    pre_tokenizer.run(part, scratch.other, where, scratch.ends, scratch.other_ends);
    encode_pieces<Offsets>(
        part.bytes, scratch, ids,
        [&](size_t begin, size_t end) {
          const OriginalRange range = part.origin_of(begin, end);
          return OriginalRange{base + range.begin, base + range.end};
        },
        on_token);
  };
  if (!finds_normalized) return encode_here(whole, place);
  std::vector<AddedTokenFinder::Part> parts;
  added_token_finder.split_normalized(whole.bytes, parse_special, parts);
  for (const auto& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      if constexpr (Offsets) {
        const OriginalRange range = whole.origin_of(part.begin, part.end);
        on_token(part.id, base + range.begin, base + range.end);
      }
      continue;
    }
    AlignedText& piece = scratch.pre_tokenized;
    piece.clear_like(whole);
    piece.copy(whole, part.begin, part.end);
    const bool at_text_begin = place.at_text_begin && part.begin == 0;
    encode_here(piece, {true, true, at_text_begin});
  }
}

template <bool Offsets, class OnToken>
void Tokenizer::Implementation::encode_part(std::string_view part, PartPlace place, bool parse_special,
                                            EncodeScratch& scratch, std::vector<int32_t>& ids,
                                            const OnToken& on_token) const {
  // An added token could stand over a cut.
  const bool finds_normalized = !normalizer.empty() && added_token_finder.any_normalized(parse_special);
  const uint64_t dropped_before = scratch.model.dropped_bytes;
  for (size_t at = 0; at < part.size();) {
    const size_t stretch_end =
        at + stretch(part.substr(at), finds_normalized ? Cuts::none : cuts, kStretchBytes);
    while (at < stretch_end) {
      const std::string_view here = part.substr(at, stretch_end - at);
      const size_t valid = valid_utf8_prefix(here);
      if (valid > 0) {
        const PartPlace where{place.at_begin && at == 0, place.at_end && at + valid == part.size(),
                              place.at_text_begin && at == 0};
        encode_valid<Offsets>(here.substr(0, valid), at, where, parse_special, scratch, ids, on_token);
      }
      at += valid;
      if (valid == here.size()) break;
      const size_t invalid = invalid_run(here.substr(valid));
      const size_t first = ids.size();
      scratch.ranges.clear();
      model->encode_invalid(here.substr(valid, invalid), scratch.model, ids,
                            Offsets ? &scratch.ranges : nullptr);
      if constexpr (Offsets) {
        for (size_t i = first; i < ids.size(); ++i) {
          const TokenRange range = scratch.ranges[i - first];
          on_token(ids[i], at + range.begin, at + range.end);
        }
      }
      at += invalid;
    }
  }
  if (scratch.model.dropped_bytes > dropped_before) {
    std::call_once(dropped_bytes_told, [] {
      log_warning("the text has bytes for which this tokenizer has no token; they are left out");
    });
  }
}

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
  Borrowed borrowed(parts.scratch_pool);
  EncodeScratch& scratch = *borrowed;
  const auto ignore = [](int32_t, size_t, size_t) {};
  const size_t begin = ids.size();
  if (options.add_special) ids.insert(ids.end(), parts.prefix_ids.begin(), parts.prefix_ids.end());
  const size_t text_begin = ids.size();
  if (!parts.added_token_finder.any(options.parse_special)) {
    parts.encode_part<false>(text, {}, options.parse_special, scratch, ids, ignore);
  } else {
    parts.split_added(text, options.parse_special, scratch.parts);
    for (const auto& part : scratch.parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        parts.encode_part<false>(text.substr(part.begin, part.end - part.begin),
                                 {.at_text_begin = part.begin == 0}, options.parse_special, scratch, ids,
                                 ignore);
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
  Borrowed borrowed(parts.scratch_pool);
  EncodeScratch& scratch = *borrowed;
  std::vector<TokenSpan> spans;
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id, size_t begin, size_t end) {
    spans.push_back(
        {.id = id, .byte_begin = begin, .byte_end = end, .character_begin = 0, .character_end = 0});
  };
  parts.split_added(text, options.parse_special, scratch.parts);
  for (const auto& part : scratch.parts) {
    if (part.id >= 0) {
      add(part.id, part.begin, part.end);
      continue;
    }
    ids.clear();
    parts.encode_part<true>(
        text.substr(part.begin, part.end - part.begin), {.at_text_begin = part.begin == 0},
        options.parse_special, scratch, ids,
        [&](int32_t id, size_t begin, size_t end) { add(id, part.begin + begin, part.begin + end); });
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

std::vector<int32_t> Tokenizer::encode_parallel(std::string_view text, int threads,
                                                const EncodeOptions& options) const {
  const Implementation& parts = *implementation_;
  struct Work {
    size_t begin;
    size_t end;
    int32_t id;
    PartPlace place;
    std::vector<int32_t> ids;
  };
  std::vector<Work> works;
  std::vector<AddedTokenFinder::Part> found;
  parts.split_added(text, options.parse_special, found);
  const bool finds_normalized =
      !parts.normalizer.empty() && parts.added_token_finder.any_normalized(options.parse_special);
  for (const auto& part : found) {
    if (part.id >= 0) {
      works.push_back({part.begin, part.end, part.id, {}, {}});
      continue;
    }
    for (size_t at = part.begin; at < part.end;) {
      const size_t length = stretch(text.substr(at, part.end - at),
                                    finds_normalized ? Cuts::none : parts.cuts, 16 * kStretchBytes);
      works.push_back({at, at + length, -1, {at == part.begin, at + length == part.end, at == 0}, {}});
      at += length;
    }
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic) num_threads(std::max(1, threads))
  for (size_t i = 0; i < works.size(); ++i) {
    Work& work = works[i];
    try {
      if (work.id >= 0) {
        work.ids.push_back(work.id);
      } else {
        Borrowed borrowed(parts.scratch_pool);
        parts.encode_part<false>(text.substr(work.begin, work.end - work.begin), work.place,
                                 options.parse_special, *borrowed, work.ids, [](int32_t, size_t, size_t) {});
      }
    } catch (...) {
#pragma omp critical(megalith_encode_parallel)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  std::vector<int32_t> ids;
  if (options.add_special) ids = parts.prefix_ids;
  const size_t text_begin = ids.size();
  std::vector<size_t> begins = {ids.size()};
  for (const Work& work : works) begins.push_back(begins.back() + work.ids.size());
  ids.resize(begins.back());
#pragma omp parallel for schedule(dynamic) num_threads(std::max(1, threads))
  for (size_t i = 0; i < works.size(); ++i)
    std::copy(works[i].ids.begin(), works[i].ids.end(), ids.begin() + static_cast<ptrdiff_t>(begins[i]));
  parts.finish_ids(options, 0, text_begin, ids);
  return ids;
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
