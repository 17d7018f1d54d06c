#include "megalith/text/charsmap_normalizer.h"

#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include <array>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/charsmap.h"
#include "megalith/text/piece_trie.h"

namespace megalith {

namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

// The ends of the graphemes (extended clusters) of a text; one for each thread.
class GraphemeBreaker {
 public:
  GraphemeBreaker() {
    UErrorCode error = U_ZERO_ERROR;
    iterator_.reset(icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
    check(U_SUCCESS(error) != 0, "graphemes: ICU's data cannot be loaded: {}", u_errorName(error));
  }
  template <class Visit>
  void visit(std::string_view text, const Visit& visit) {
    UErrorCode error = U_ZERO_ERROR;
    UText source = UTEXT_INITIALIZER;
    utext_openUTF8(&source, text.data(), static_cast<int64_t>(text.size()), &error);
    iterator_->setText(&source, error);
    check(U_SUCCESS(error) != 0, "graphemes: {}", u_errorName(error));
    size_t begin = 0;
    iterator_->first();
    for (int32_t end = iterator_->next(); end != icu::BreakIterator::DONE; end = iterator_->next()) {
      visit(begin, static_cast<size_t>(end));
      begin = static_cast<size_t>(end);
    }
    utext_close(&source);
  }

 private:
  std::unique_ptr<icu::BreakIterator> iterator_;
};

class Precompiled final : public NormalizerOperation {
 public:
  explicit Precompiled(const NormalizerStep& step) : map_(step.charsmap, step.element) {
    for (size_t c = 0; c < 128; ++c) {
      const char byte = static_cast<char>(c);
      ascii_[c] = map_.shortest(std::string_view(&byte, 1));
    }
  }

  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    const std::string_view text = in.bytes;
    bool changed = false;
    size_t done = 0;
    const auto replace = [&](size_t begin, size_t end, std::string_view replacement) {
      if (!changed) out.clear_like(in);
      changed = true;
      out.copy(in, done, begin);
      // The n-th character comes from the n-th replaced one, those beyond from the last.
      size_t source = begin, last = begin;
      for (size_t at = 0; at < replacement.size();) {
        const size_t from = at;
        next_code_point(replacement, at);
        out.put(replacement.substr(from, at - from), in, source < end ? source : last);
        if (source < end) {
          last = source;
          next_code_point(text, source);
        }
      }
      done = end;
    };
    const auto replace_one = [&](size_t begin, size_t end) {
      const Charsmap::Match match = map_.shortest(text.substr(begin, end - begin));
      if (match.length > 0) replace(begin, end, match.replacement);
      return match.length > 0;
    };
    const auto is_ascii = [&](size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
    for (size_t at = 0; at < text.size();) {
      if (is_ascii(at) && (at + 1 == text.size() || is_ascii(at + 1))) {
        if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') {  // one grapheme
          replace_one(at, at + 2);
          at += 2;
          continue;
        }
        const Charsmap::Match& match = ascii_[static_cast<unsigned char>(text[at])];
        if (match.length > 0) replace(at, at + 1, match.replacement);
        ++at;
        continue;
      }
      // Up to where two ASCII characters meet, graphemes may hold several characters.
      size_t end = at + 1;
      while (end < text.size() && !(is_ascii(end) && is_ascii(end - 1))) ++end;
      if (end < text.size()) --end;
      if (end <= at) end = at + 1;
      thread_local GraphemeBreaker breaker;
      const size_t base = at;
      breaker.visit(text.substr(base, end - base), [&](size_t begin, size_t stop) {
        begin += base;
        stop += base;
        if (stop - begin < 6 && replace_one(begin, stop)) return;
        while (begin < stop) {
          size_t next = begin;
          next_code_point(text, next);
          replace_one(begin, next);
          begin = next;
        }
      });
      at = end;
    }
    if (changed) out.copy(in, done, text.size());
    return changed;
  }

 private:
  Charsmap map_;
  std::array<Charsmap::Match, 128> ascii_;
};

class SentencePieceNormalizer final : public NormalizerOperation {
 public:
  explicit SentencePieceNormalizer(const NormalizerStep& step)
      : step_(step), map_(step.charsmap, step.element) {
    for (size_t i = 0; i < step.protected_texts.size(); ++i)
      protected_.insert(step.protected_texts[i], static_cast<int32_t>(i));
    for (size_t c = 0; c < 128; ++c) {
      const char byte = static_cast<char>(c);
      const std::string_view text(&byte, 1);
      // A key may begin with it, and go on.
      plain_[c] = c != ' ' && map_.longest(text).length == 0 && !map_.goes_on_after(byte) &&
                  protected_.child(0, byte) == 0;
    }
  }

  bool apply(const AlignedText& in, AlignedText& out, PartPlace place) const override {
    std::string_view text = in.bytes;
    if (text.empty()) return false;
    const std::string_view space = step_.escape_whitespaces ? kSpaceSymbol : std::string_view(" ");
    const bool trims = step_.remove_extra_whitespaces;
    out.clear_like(in);
    out.bytes.reserve(text.size() + text.size() / 2 + 8);
    size_t at = 0;
    if (trims && place.at_begin) {
      while (at < text.size()) {
        const auto [replacement, length] = prefix(text.substr(at));
        if (replacement != " ") break;
        at += length;
      }
      if (at == text.size()) return true;
    }
    if (!step_.whitespace_as_suffix && step_.add_dummy_prefix && place.at_begin) out.put(space, in, at);
    bool after_space = trims && place.at_begin;
    while (at < text.size()) {
      const size_t begin = at;
      while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80 &&
             plain_[static_cast<unsigned char>(text[at])])
        ++at;
      if (at > begin) {
        out.copy(in, begin, at);
        after_space = false;
        continue;
      }
      auto [replacement, length] = prefix(text.substr(at));
      while (after_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
      if (!replacement.empty()) {
        after_space = replacement.ends_with(' ');
        for (size_t from = 0; from < replacement.size();) {
          const size_t stop = replacement.find(' ', from);
          if (stop == from) {
            out.put(space, in, at);
            ++from;
            continue;
          }
          const std::string_view run = replacement.substr(from, stop - from);
          if (replacement.data() == text.data() + at && run.size() == length) {
            out.copy(in, at, at + length);
          } else {
            out.put(run, in, at);
          }
          from += run.size();
        }
      }
      at += length;
      if (!trims) after_space = false;
    }
    if (trims && place.at_end) {
      while (out.bytes.ends_with(space)) {
        out.bytes.resize(out.bytes.size() - space.size());
        if (out.aligned) out.origins.resize(out.bytes.size());
      }
    }
    if (step_.whitespace_as_suffix && step_.add_dummy_prefix && place.at_end)
      out.put(space, in, text.size() - 1);
    return true;
  }

  std::string_view space() const override {
    return step_.escape_whitespaces ? kSpaceSymbol : std::string_view(" ");
  }
  // The character map could hold a key over the cut.
  bool can_cut() const override {
    for (char letter = 'A'; letter <= 'z'; ++letter) {
      const std::string key = {letter, ' '};
      if (map_.longest(key).length == 2) return false;
    }
    return protected_.empty();
  }

 private:
  // What the text begins with becomes, and how long that is.
  std::pair<std::string_view, size_t> prefix(std::string_view text) const {
    if (!protected_.empty()) {
      size_t longest = 0;
      uint32_t node = 0;
      for (size_t i = 0; i < text.size(); ++i) {
        node = protected_.child(node, text[i]);
        if (node == 0) break;
        if (protected_.value(node) >= 0) longest = i + 1;
      }
      if (longest > 0) return {text.substr(0, longest), longest};
    }
    const Charsmap::Match match = map_.longest(text);
    if (match.length > 0) return {match.replacement, match.length};
    size_t length = 0;
    next_code_point(text, length);
    return {text.substr(0, length), length};
  }
  NormalizerStep step_;
  Charsmap map_;
  PieceTrie protected_;
  std::array<bool, 128> plain_{};
};

}  // namespace

std::unique_ptr<NormalizerOperation> make_precompiled(const NormalizerStep& step) {
  return std::make_unique<Precompiled>(step);
}

std::unique_ptr<NormalizerOperation> make_sentencepiece_normalizer(const NormalizerStep& step) {
  return std::make_unique<SentencePieceNormalizer>(step);
}

}  // namespace megalith
