#include "megalith/text/normalizer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/character_properties.h"
#include "megalith/text/charsmap_normalizer.h"
#include "megalith/text/regex.h"
#include "megalith/text/unicode_normalization.h"

namespace megalith {

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

using AsciiSet = std::array<bool, 128>;

// Writes the text anew where `change(c, replacement)` says that a character is replaced. Characters of
// `plain` are not asked about.
template <class Change>
bool rewrite(const AlignedText& in, AlignedText& out, const AsciiSet& plain, const Change& change) {
  const std::string_view text = in.bytes;
  std::string replacement;
  bool changed = false;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80 && plain[byte]) {
      ++at;
      continue;
    }
    const size_t begin = at;
    const uint32_t c = next_code_point(text, at);
    replacement.clear();
    if (!change(c, replacement)) continue;
    if (!changed) out.clear_like(in);
    changed = true;
    out.copy(in, done, begin);
    if (!replacement.empty()) out.put(replacement, in, begin);
    done = at;
  }
  if (changed) out.copy(in, done, text.size());
  return changed;
}

AsciiSet ascii_set(bool (*holds)(uint32_t)) {
  AsciiSet set{};
  for (uint32_t c = 0; c < 128; ++c) set[c] = holds(c);
  return set;
}

class UnicodeForm final : public NormalizerOperation {
 public:
  explicit UnicodeForm(NormalizationForm form) : form_(form) {}
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    return normalize(form_, in, out);
  }
  bool keeps_ascii() const override { return true; }

 private:
  NormalizationForm form_;
};

class Lowercase final : public NormalizerOperation {
 public:
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    const std::string_view text = in.bytes;
    out.clear_like(in);
    out.bytes.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80) ++end;
      if (end > at) {
        const size_t written = out.bytes.size();
        out.copy(in, at, end);
        for (size_t i = written; i < out.bytes.size(); ++i) {
          const char c = out.bytes[i];
          out.bytes[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
        }
        at = end;
        continue;
      }
      const size_t begin = at;
      const uint32_t c = next_code_point(text, at);
      if (c == 0x130) {  // The only character of which the lower case is two.
        out.put("i\xCC\x87", in, begin);
      } else {
        out.put(lower_case(c), in, begin);
      }
    }
    return true;
  }
};

// Leaves out the characters of a kind.
class Filter final : public NormalizerOperation {
 public:
  explicit Filter(bool (*removed)(uint32_t)) : removed_(removed) {
    for (uint32_t c = 0; c < 128; ++c) kept_[c] = !removed(c);
  }
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    return rewrite(in, out, kept_, [&](uint32_t c, std::string&) { return removed_(c); });
  }
  bool keeps_ascii() const override {
    return std::all_of(kept_.begin(), kept_.end(), [](bool kept) { return kept; });
  }

 private:
  bool (*removed_)(uint32_t);
  AsciiSet kept_{};
};

class CleanText final : public NormalizerOperation {
 public:
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    static const AsciiSet plain = ascii_set([](uint32_t c) { return c >= 0x20 && c != 0x7F; });
    return rewrite(in, out, plain, [](uint32_t c, std::string& replacement) {
      if (c == '\t' || c == '\n' || c == '\r') {
        replacement = " ";
        return true;
      }
      if (c == 0 || c == 0xFFFD || is_control_or_format(c)) return true;
      if (!is_white_space(c)) return false;
      replacement = " ";
      return true;
    });
  }
};

class SpaceChinese final : public NormalizerOperation {
 public:
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    static const AsciiSet plain = ascii_set([](uint32_t) { return true; });
    return rewrite(in, out, plain, [](uint32_t c, std::string& replacement) {
      if (!is_chinese(c)) return false;
      replacement = " ";
      append_utf8(replacement, c);
      replacement += " ";
      return true;
    });
  }
  bool keeps_ascii() const override { return true; }
};

class Nmt final : public NormalizerOperation {
 public:
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    static const AsciiSet plain = ascii_set([](uint32_t c) { return c >= 0x20 && c != 0x7F; });
    return rewrite(in, out, plain, [](uint32_t c, std::string& replacement) {
      if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
        return true;
      const bool space = c == 9 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                         c == 0xFEFF || c == 0xFFFD;
      if (space) replacement = " ";
      return space;
    });
  }
};

class Strip final : public NormalizerOperation {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  bool apply(const AlignedText& in, AlignedText& out, PartPlace place) const override {
    const std::string_view text = in.bytes;
    size_t begin = 0, end = text.size();
    while (left_ && place.at_begin && begin < end) {
      size_t next = begin;
      if (!is_white_space(next_code_point(text, next))) break;
      begin = next;
    }
    while (right_ && place.at_end && end > begin) {
      size_t last = end - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      size_t next = last;
      if (!is_white_space(next_code_point(text, next))) break;
      end = last;
    }
    if (begin == 0 && end == text.size()) return false;
    out.clear_like(in);
    out.copy(in, begin, end);
    return true;
  }

 private:
  bool left_, right_;
};

class Replace final : public NormalizerOperation {
 public:
  explicit Replace(const NormalizerStep& step) : pattern_(step.pattern), content_(step.content) {
    if (pattern_.is_regex) regex_.emplace(pattern_.text, step.element);
  }
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    const std::string_view text = in.bytes;
    bool changed = false;
    size_t done = 0;
    const auto replace = [&](size_t begin, size_t end) {
      if (!changed) {
        out.clear_like(in);
        out.bytes.reserve(text.size() + text.size() / 4);
      }
      changed = true;
      out.copy(in, done, begin);
      if (end == 0) {
        out.put_before(content_);
      } else {
        out.put(content_, in, end - 1);
      }
      done = end;
    };
    if (!regex_) {
      for (size_t at = find_literal(text, 0); at != std::string_view::npos; at = find_literal(text, done))
        replace(at, at + pattern_.text.size());
    } else {
      size_t from = 0, begin = 0, end = 0;
      bool any = false;
      while (from <= text.size() && regex_->find(text, from, begin, end)) {
        // A match of nothing right behind the last one does not count.
        if (begin != end || !any || begin != done) replace(begin, end);
        any = true;
        from = end;
        if (begin == end) {
          if (end >= text.size()) break;
          next_code_point(text, from);
        }
      }
    }
    if (changed) out.copy(in, done, text.size());
    return changed;
  }
  bool can_cut() const override {
    if (pattern_.is_regex) return pattern_.text == " {2,}";
    for (size_t i = 0; i + 1 < pattern_.text.size(); ++i) {
      if (pattern_.text[i] == '\n') return false;
    }
    return pattern_.text.size() == 1 || pattern_.text.find(' ') == std::string::npos;
  }
  std::string_view space() const override { return pattern_.text == " " ? std::string_view(content_) : " "; }

 private:
  size_t find_literal(std::string_view text, size_t from) const {
    return pattern_.text.size() == 1 ? text.find(pattern_.text[0], from) : text.find(pattern_.text, from);
  }

  TextPattern pattern_;
  std::string content_;
  std::optional<Regex> regex_;
};

class Affix final : public NormalizerOperation {
 public:
  Affix(std::string content, bool before) : content_(std::move(content)), before_(before) {}
  bool apply(const AlignedText& in, AlignedText& out, PartPlace place) const override {
    if (in.bytes.empty() || !(before_ ? place.at_begin : place.at_end) || content_.empty()) return false;
    out.clear_like(in);
    out.bytes.reserve(in.bytes.size() + content_.size());
    if (before_) out.put(content_, in, 0);
    out.copy(in, 0, in.bytes.size());
    if (!before_) out.put(content_, in, in.bytes.size() - 1);
    return true;
  }

 private:
  std::string content_;
  bool before_;
};

class SpellBytes final : public NormalizerOperation {
 public:
  bool apply(const AlignedText& in, AlignedText& out, PartPlace) const override {
    out.clear_like(in);
    for (size_t at = 0; at < in.bytes.size(); ++at)
      out.put(byte_alphabet()[static_cast<unsigned char>(in.bytes[at])], in, at);
    return !in.bytes.empty();
  }
};

}  // namespace

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  const auto add = [&](std::unique_ptr<NormalizerOperation> operation) {
    keeps_ascii_ = keeps_ascii_ && operation->keeps_ascii();
    operations_.push_back(std::move(operation));
  };
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case NormalizerKind::nfc:
        add(std::make_unique<UnicodeForm>(NormalizationForm::nfc));
        break;
      case NormalizerKind::nfd:
        add(std::make_unique<UnicodeForm>(NormalizationForm::nfd));
        break;
      case NormalizerKind::nfkc:
        add(std::make_unique<UnicodeForm>(NormalizationForm::nfkc));
        break;
      case NormalizerKind::nfkd:
        add(std::make_unique<UnicodeForm>(NormalizationForm::nfkd));
        break;
      case NormalizerKind::lowercase:
        add(std::make_unique<Lowercase>());
        break;
      case NormalizerKind::strip:
        add(std::make_unique<Strip>(step.left, step.right));
        break;
      case NormalizerKind::strip_accents:
        add(std::make_unique<Filter>(is_mark));
        break;
      case NormalizerKind::replace:
        add(std::make_unique<Replace>(step));
        break;
      case NormalizerKind::prepend:
      case NormalizerKind::append:
        add(std::make_unique<Affix>(step.content, step.kind == NormalizerKind::prepend));
        break;
      case NormalizerKind::bert:
        if (step.clean_text) add(std::make_unique<CleanText>());
        if (step.handle_chinese_chars) add(std::make_unique<SpaceChinese>());
        if (step.strip_accents.value_or(step.lowercase)) {
          add(std::make_unique<UnicodeForm>(NormalizationForm::nfd));
          add(std::make_unique<Filter>(is_nonspacing_mark));
        }
        if (step.lowercase) add(std::make_unique<Lowercase>());
        break;
      case NormalizerKind::nmt:
        add(std::make_unique<Nmt>());
        break;
      case NormalizerKind::precompiled:
        if (!step.charsmap.empty()) add(make_precompiled(step));
        break;
      case NormalizerKind::byte_level:
        add(std::make_unique<SpellBytes>());
        break;
      case NormalizerKind::sentencepiece:
        add(make_sentencepiece_normalizer(step));
        break;
    }
  }
}

bool Normalizer::can_cut() const {
  return std::all_of(operations_.begin(), operations_.end(),
                     [](const auto& operation) { return operation->can_cut(); });
}

std::string_view Normalizer::space() const {
  std::string_view space = " ";
  for (const auto& operation : operations_) {
    if (space == " ") space = operation->space();
  }
  return space;
}

bool Normalizer::surely_keeps(std::string_view text) const {
  return operations_.empty() || (keeps_ascii_ && is_ascii(text));
}

void Normalizer::apply(AlignedText& text, AlignedText& scratch, PartPlace place) const {
  for (const auto& operation : operations_) {
    if (operation->apply(text, scratch, place)) text.swap(scratch);
  }
}

}  // namespace megalith
