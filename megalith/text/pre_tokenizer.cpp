#include "megalith/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/model.h"
#include "megalith/text/splitters.h"

namespace megalith {

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps, bool keep_bytes) {
  for (const PreTokenizerStep& step : steps) {
    Step made;
    if (step.kind == PreTokenizerKind::byte_level) {
      if (keep_bytes) {
        add_prefix_space_ = step.add_prefix_space;
        if (step.use_regex) {
          made.splitter = make_pattern_splitter({std::string(kGpt2Pattern), true}, SplitBehavior::isolated,
                                                false, step.element);
          steps_.push_back(std::move(made));
        }
        continue;
      }
      made.rewrite = step;
    } else if (step.kind == PreTokenizerKind::metaspace) {
      made.rewrite = step;
      asks_for_begin_ = asks_for_begin_ || step.prepend == PrependScheme::first;
    } else {
      made.splitter = make_splitter(step);
      made.only_at_spaces =
          step.kind == PreTokenizerKind::split && !step.pattern.is_regex && step.pattern.text == " ";
    }
    only_splits_ = only_splits_ && made.splitter != nullptr;
    steps_.push_back(std::move(made));
  }
}

namespace {

// Splits every piece again.
void split_pieces(const Splitter& splitter, std::string_view text, std::vector<size_t>& ends,
                  std::vector<size_t>& scratch) {
  scratch.swap(ends);
  ends.clear();
  size_t begin = 0;
  for (const size_t marked : scratch) {
    const size_t end = end_of(marked);
    if (is_dropped(marked)) {
      ends.push_back(marked);
    } else {
      splitter.split(text.substr(begin, end - begin), begin, ends);
    }
    begin = end;
  }
}

}  // namespace

void PreTokenizer::split(std::string_view text, std::vector<size_t>& ends,
                         std::vector<size_t>& scratch) const {
  ends.clear();
  if (text.empty()) return;
  if (steps_.empty()) {
    ends.push_back(text.size());
  } else {
    steps_[0].splitter->split(text, 0, ends);
  }
  for (size_t i = 1; i < steps_.size(); ++i) split_pieces(*steps_[i].splitter, text, ends, scratch);
  if (words_ != nullptr) split_pieces(*words_, text, ends, scratch);
}

void PreTokenizer::run(AlignedText& text, AlignedText& other, PartPlace place, std::vector<size_t>& ends,
                       std::vector<size_t>& scratch) const {
  ends.clear();
  if (text.bytes.empty()) return;
  ends.push_back(text.bytes.size());
  for (const Step& step : steps_) {
    if (step.splitter) {
      split_pieces(*step.splitter, text.bytes, ends, scratch);
    } else {
      rewrite(*step.rewrite, text, other, place, ends, scratch);
    }
  }
  if (words_ != nullptr) split_pieces(*words_, text.bytes, ends, scratch);
}

void PreTokenizer::add_words_of(const Model& model) {
  words_ = model.words();
}

void PreTokenizer::rewrite(const PreTokenizerStep& step, AlignedText& text, AlignedText& other,
                           PartPlace place, std::vector<size_t>& ends, std::vector<size_t>& scratch) const {
  static const auto gpt2 =
      make_pattern_splitter({std::string(kGpt2Pattern), true}, SplitBehavior::isolated, false, "ByteLevel");
  scratch.swap(ends);
  ends.clear();
  other.clear_like(text);
  other.bytes.reserve(text.bytes.size() * 3 / 2 + 8);
  const std::string_view source = text.bytes;
  std::string spelled;
  std::vector<size_t> inner;
  size_t begin = 0;
  for (const size_t marked : scratch) {
    const size_t end = end_of(marked);
    const size_t from = std::exchange(begin, end);
    if (is_dropped(marked)) {
      other.copy(text, from, end);
      ends.push_back(other.bytes.size() | kDropped);
      continue;
    }
    const std::string_view piece = source.substr(from, end - from);
    if (step.kind == PreTokenizerKind::metaspace) {
      const std::string_view mark = step.character;
      // A cut never stands inside a piece that begins a text.
      const bool wanted = step.prepend == PrependScheme::always ? from > 0 || place.at_begin
                                                                : from == 0 && place.at_text_begin;
      size_t first = other.bytes.size();
      if (step.prepend != PrependScheme::never && wanted && piece[0] != ' ' && !piece.starts_with(mark))
        other.put(mark, text, from);
      const auto end_before = [&](size_t at) {  // A mark begins a new piece.
        if (step.split && at > first) {
          ends.push_back(at);
          first = at;
        }
      };
      size_t done = 0;
      for (size_t at = 0; at < piece.size();) {
        const bool space = piece[at] == ' ';
        if (!space && (piece[at] != mark[0] || !piece.substr(at).starts_with(mark))) {
          ++at;
          continue;
        }
        other.copy(text, from + done, from + at);
        end_before(other.bytes.size());
        other.put(mark, text, from + at);
        if (!space && other.aligned) {
          std::copy_n(text.origins.begin() + static_cast<ptrdiff_t>(from + at), mark.size(),
                      other.origins.end() - static_cast<ptrdiff_t>(mark.size()));
        }
        at += space ? 1 : mark.size();
        done = at;
      }
      other.copy(text, from + done, end);
      ends.push_back(other.bytes.size());
      continue;
    }
    // Bytes, each spelled as a character of the byte alphabet; words are found before.
    const bool prefix = step.add_prefix_space && piece[0] != ' ' && (from > 0 || place.at_begin);
    inner.clear();
    std::string with_prefix;
    std::string_view words = piece;
    if (prefix) {
      with_prefix.assign(1, ' ').append(piece);
      words = with_prefix;
    }
    if (step.use_regex) {
      gpt2->split(words, 0, inner);
    } else {
      inner.push_back(words.size());
    }
    size_t at = 0;
    for (const size_t stop : inner) {
      for (; at < stop; ++at) {
        const size_t origin = from + (prefix ? (at > 0 ? at - 1 : 0) : at);
        other.put(byte_alphabet()[static_cast<unsigned char>(words[at])], text, origin);
      }
      ends.push_back(other.bytes.size());
    }
  }
  text.swap(other);
}

AtCut PreTokenizer::at_cut(std::string_view space) const {
  AtCut all = AtCut::keeps;
  for (const Step& step : steps_) {
    AtCut here = AtCut::unknown;
    if (step.splitter) {
      here = step.only_at_spaces && space != " " ? AtCut::keeps : step.splitter->at_cut();
      if (here >= AtCut::splits_at_spaces && space != " ") here = AtCut::unknown;
    } else if (step.rewrite->kind == PreTokenizerKind::metaspace) {
      here = !step.rewrite->split                               ? AtCut::keeps
             : space == " " || space == step.rewrite->character ? AtCut::splits_at_spaces
                                                                : AtCut::unknown;
      if (here == AtCut::splits_at_spaces) space = step.rewrite->character;
    } else if (space == " ") {
      here = step.rewrite->use_regex ? AtCut::splits_at_spaces : AtCut::keeps;
    }
    if (here == AtCut::unknown) return here;
    all = steps_.size() == 1 ? here : std::min(std::max(all, here), AtCut::splits_at_spaces);
  }
  if (all == AtCut::keeps && words_ != nullptr && words_->space() == space) all = words_->at_cut();
  return all;
}

}  // namespace megalith
