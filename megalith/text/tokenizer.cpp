#include "megalith/text/tokenizer.h"

#include <algorithm>
#include <exception>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/base/utf8.h"
#include "megalith/text/stretch.h"
#include "megalith/text/tokenizer_implementation.h"

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

template <class OnPiece>
void Tokenizer::Implementation::encode_plain(std::string_view text, bool at_start, EncodeScratch& scratch,
                                             std::vector<int32_t>& ids, const OnPiece& on_piece) const {
  const bool prefix = at_start && pre_tokenizer.add_prefix_space && !text.empty() && text[0] != ' ';
  const size_t shift = prefix ? 1 : 0;  // Positions are counted in the text without the prefix.
  if (prefix) {
    scratch.prefixed.assign(1, ' ').append(text);
    text = scratch.prefixed;
  }
  const auto original = [&](size_t position) { return position >= shift ? position - shift : 0; };
  size_t at = 0;
  const auto encode_stretch = [&](std::string_view part) {
    pre_tokenizer.split(part, scratch.ends, scratch.other_ends);
    const char* const text_end = part.data() + part.size();
    size_t begin = 0;
    for (const size_t end : scratch.ends) {
      const std::string_view piece(part.data() + begin, end - begin);
      const size_t first = ids.size();
      if (piece.size() <= WordCache::kMaximumBytes) {
        const auto key = WordCache::make_key(piece, static_cast<size_t>(text_end - piece.data()));
        WordCache::Slot& slot = scratch.cache.slot(key);
        if (slot.holds(key)) [[likely]] {
          if (slot.count == 1) {
            ids.push_back(slot.ids[0]);
          } else {
            ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
          }
        } else {
          model.encode(piece, pieces, scratch.bpe, ids);
          const size_t count = ids.size() - first;
          if (count <= WordCache::kMaximumIds) {
            slot.low = key.low;
            slot.high = key.high;
            slot.length = key.length;
            slot.count = static_cast<uint8_t>(count);
            std::copy(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), slot.ids);
          }
        }
      } else {
        model.encode(piece, pieces, scratch.bpe, ids);
      }
      on_piece(original(at + begin), original(at + end), first);
      begin = end;
    }
  };
  const uint64_t dropped_before = scratch.bpe.dropped_bytes;
  while (at < text.size()) {
    const size_t stretch_end = at + stretch(text.substr(at), pre_tokenizer.can_cut(), kStretchBytes);
    while (at < stretch_end) {
      const std::string_view part = text.substr(at, stretch_end - at);
      const size_t valid = valid_utf8_prefix(part);
      if (valid > 0) encode_stretch(part.substr(0, valid));
      at += valid;
      if (valid == part.size()) break;
      const size_t invalid = invalid_run(part.substr(valid));
      const size_t first = ids.size();
      model.encode(part.substr(valid, invalid), pieces, scratch.bpe, ids);
      on_piece(original(at), original(at + invalid), first);
      at += invalid;
    }
  }
  if (scratch.bpe.dropped_bytes > dropped_before) {
    std::call_once(dropped_bytes_told, [] {
      log_warning("the text has bytes for which this tokenizer has no token; they are left out");
    });
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view name) {
  return Tokenizer(read_tokenizer_json(json, name));
}

const std::string& Tokenizer::to_json() const {
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
  const auto ignore = [](size_t, size_t, size_t) {};
  if (options.add_special) ids.insert(ids.end(), parts.prefix_ids.begin(), parts.prefix_ids.end());
  if (!parts.added_token_finder.any(options.parse_special)) {
    parts.encode_plain(text, true, scratch, ids, ignore);
  } else {
    parts.added_token_finder.split(text, options.parse_special, scratch.parts);
    for (const auto& part : scratch.parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        parts.encode_plain(text.substr(part.begin, part.end - part.begin), true, scratch, ids, ignore);
      }
    }
  }
  if (options.add_special) ids.insert(ids.end(), parts.suffix_ids.begin(), parts.suffix_ids.end());
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
  if (options.add_special) {
    for (const int32_t id : parts.prefix_ids) add(id, 0, 0);
  }
  parts.added_token_finder.split(text, options.parse_special, scratch.parts);
  for (const auto& part : scratch.parts) {
    if (part.id >= 0) {
      add(part.id, part.begin, part.end);
      continue;
    }
    ids.clear();
    parts.encode_plain(text.substr(part.begin, part.end - part.begin), true, scratch, ids,
                       [&](size_t begin, size_t end, size_t first) {
                         // Counted from the end, so that a prefix space falls on nothing.
                         size_t length = 0;
                         for (size_t i = first; i < ids.size(); ++i)
                           length += parts.pieces.bytes(ids[i]).size();
                         for (size_t i = first; i < ids.size(); ++i) {
                           const size_t from = length > end - begin ? begin : end - length;
                           length -= parts.pieces.bytes(ids[i]).size();
                           const size_t to = length > end - begin ? begin : end - length;
                           add(ids[i], part.begin + from, part.begin + to);
                         }
                       });
  }
  if (options.add_special) {
    for (const int32_t id : parts.suffix_ids) add(id, text.size(), text.size());
  }
  // Characters: bytes that continue a character do not count. A token that begins inside a character begins
  // with it.
  const auto continues = [&](size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  size_t at = 0, begun = 0;  // Characters that begin before byte `at`.
  const auto advance = [&](size_t to) {
    for (; at < to; ++at) begun += continues(at) ? 0 : 1;
  };
  for (TokenSpan& span : spans) {
    advance(span.byte_begin);
    span.character_begin = begun - (continues(at) && begun > 0 && span.byte_end > span.byte_begin ? 1 : 0);
    advance(span.byte_end);
    span.character_end = begun;
  }
  return spans;
}

std::vector<int32_t> Tokenizer::encode_parallel(std::string_view text, int threads,
                                                const EncodeOptions& options) const {
  const Implementation& parts = *implementation_;
  struct Work {
    size_t begin;
    size_t end;
    int32_t id;
    bool at_start;
    std::vector<int32_t> ids;
  };
  std::vector<Work> works;
  std::vector<AddedTokenFinder::Part> found;
  parts.added_token_finder.split(text, options.parse_special, found);
  for (const auto& part : found) {
    if (part.id >= 0) {
      works.push_back({part.begin, part.end, part.id, true, {}});
      continue;
    }
    for (size_t at = part.begin; at < part.end;) {
      const size_t length =
          stretch(text.substr(at, part.end - at), parts.pre_tokenizer.can_cut(), 16 * kStretchBytes);
      works.push_back({at, at + length, -1, at == part.begin, {}});
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
        parts.encode_plain(text.substr(work.begin, work.end - work.begin), work.at_start, *borrowed, work.ids,
                           [](size_t, size_t, size_t) {});
      }
    } catch (...) {
#pragma omp critical(megalith_encode_parallel)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  std::vector<int32_t> ids;
  if (options.add_special) ids = parts.prefix_ids;
  for (const Work& work : works) ids.insert(ids.end(), work.ids.begin(), work.ids.end());
  if (options.add_special) ids.insert(ids.end(), parts.suffix_ids.begin(), parts.suffix_ids.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    const std::string_view bytes = token_bytes(id);
    if (!skip_special || !is_special(id)) text.append(bytes);
  }
  return text;
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

std::string StreamingDecoder::push(int32_t id) {
  const std::string_view bytes = tokenizer_->token_bytes(id);
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_.append(bytes);
  const size_t complete = complete_utf8_prefix(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamingDecoder::flush() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace megalith
