// What happens to a part of a text: stretches, normalizer, pre-tokenizer, pieces, ids.
#include "megalith/base/log.h"
#include "megalith/base/utf8.h"
#include "megalith/text/tokenizer_implementation.h"

namespace megalith {

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

void Tokenizer::Implementation::encode_ids(std::string_view part, PartPlace place, bool parse_special,
                                           EncodeScratch& scratch, std::vector<int32_t>& ids) const {
  encode_part<false>(part, place, parse_special, scratch, ids, [](int32_t, size_t, size_t) {});
}

void Tokenizer::Implementation::encode_spans(std::string_view part, PartPlace place, bool parse_special,
                                             EncodeScratch& scratch, size_t offset,
                                             std::vector<TokenSpan>& spans) const {
  std::vector<int32_t> ids;
  encode_part<true>(part, place, parse_special, scratch, ids, [&](int32_t id, size_t begin, size_t end) {
    spans.push_back({.id = id, .byte_begin = offset + begin, .byte_end = offset + end});
  });
}

}  // namespace megalith
