#include "megalith/text/splitters.h"

#include <array>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/character_properties.h"

namespace megalith {

namespace {

// Takes a text as a row of parts, matches and the gaps between them, and joins neighbours as the behavior
// says.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, bool invert, size_t base, std::vector<size_t>& ends)
      : behavior_(behavior), invert_(invert), base_(base), first_(ends.size()), ends_(ends) {}

  void add(size_t begin, size_t end, bool found) {
    const bool match = found != invert_;
    if (begin == end) {  // A match of nothing has no text, but it parts its neighbours.
      if (found) previous_is_match_ = match;
      return;
    }
    const bool has_previous = ends_.size() > first_;
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::isolated:
      case SplitBehavior::removed:
        break;
      case SplitBehavior::merged_with_previous:
        join = has_previous && match && !previous_is_match_;
        break;
      case SplitBehavior::merged_with_next:
        join = has_previous && !match && previous_is_match_;
        break;
      case SplitBehavior::contiguous:
        join = has_previous && match == previous_is_match_;
        break;
    }
    const size_t marked = (base_ + end) | (match && behavior_ == SplitBehavior::removed ? kDropped : 0);
    if (join) {
      ends_.back() = marked;
    } else {
      ends_.push_back(marked);
    }
    previous_is_match_ = match;
  }

 private:
  SplitBehavior behavior_;
  bool invert_;
  size_t base_;
  size_t first_;
  bool previous_is_match_ = false;
  std::vector<size_t>& ends_;
};

class FastPatternSplitter final : public Splitter {
 public:
  explicit FastPatternSplitter(FastSplitter fast) : fast_(fast) {}
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    split_fast(fast_, text, base, ends);
  }
  AtCut at_cut() const override { return AtCut::splits; }

 private:
  FastSplitter fast_;
};

class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(std::string_view pattern, SplitBehavior behavior, bool invert, std::string_view element)
      : regex_(pattern, element), behavior_(behavior), invert_(invert) {}
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    Joiner joiner(behavior_, invert_, base, ends);
    size_t done = 0, from = 0, begin = 0, end = 0;
    bool any = false;
    while (from <= text.size() && regex_.find(text, from, begin, end)) {
      if (begin != end || !any || begin != done) {  // Not a match of nothing right behind the last one.
        joiner.add(done, begin, false);
        joiner.add(begin, end, true);
        done = end;
        any = true;
      }
      from = end;
      if (begin == end) {
        if (end >= text.size()) break;
        next_code_point(text, from);
      }
    }
    joiner.add(done, text.size(), false);
  }

  AtCut at_cut() const override {
    const bool apart = behavior_ == SplitBehavior::isolated && !invert_;
    return apart && splits_at_spaces(regex_.pattern()) ? AtCut::splits_at_spaces : AtCut::unknown;
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

class LiteralSplitter final : public Splitter {
 public:
  LiteralSplitter(std::string pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    Joiner joiner(behavior_, invert_, base, ends);
    size_t done = 0;
    for (size_t at = text.find(pattern_); at != std::string_view::npos; at = text.find(pattern_, done)) {
      joiner.add(done, at, false);
      joiner.add(at, at + pattern_.size(), true);
      done = at + pattern_.size();
    }
    joiner.add(done, text.size(), false);
  }

 private:
  std::string pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class CharacterSplitter final : public Splitter {
 public:
  CharacterSplitter(bool (*splits)(uint32_t), SplitBehavior behavior) : splits_(splits), behavior_(behavior) {
    for (uint32_t c = 0; c < 128; ++c) ascii_[c] = splits(c);
  }
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    Joiner joiner(behavior_, false, base, ends);
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const auto byte = static_cast<unsigned char>(text[at]);
      const bool match = byte < 0x80 ? ascii_[byte] : splits_(next_code_point(text, at));
      if (byte < 0x80) ++at;
      if (!match) continue;
      joiner.add(done, begin, false);
      joiner.add(begin, at, true);
      done = at;
    }
    joiner.add(done, text.size(), false);
  }
  AtCut at_cut() const override { return splits_(' ') || splits_('a') ? AtCut::unknown : AtCut::keeps; }

 private:
  bool (*splits_)(uint32_t);
  SplitBehavior behavior_;
  std::array<bool, 128> ascii_{};
};

// Runs of characters of one class. Class `dropped` is left out, each character of class `single` is a piece.
class ClassRunSplitter final : public Splitter {
 public:
  enum Class : uint8_t { dropped, single, run, other_run };
  explicit ClassRunSplitter(Class (*classify)(uint32_t)) : classify_(classify) {
    for (uint32_t c = 0; c < 128; ++c) ascii_[c] = classify(c);
  }
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    const size_t first = ends.size();
    Class previous = single;
    for (size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const Class here = byte < 0x80 ? ascii_[byte] : classify_(next_code_point(text, at));
      if (byte < 0x80) ++at;
      const size_t marked = (base + at) | (here == dropped ? kDropped : 0);
      if (here == previous && here != single && ends.size() > first) {
        ends.back() = marked;
      } else {
        ends.push_back(marked);
      }
      previous = here;
    }
  }
  AtCut at_cut() const override { return AtCut::splits; }

 private:
  Class (*classify_)(uint32_t);
  std::array<Class, 128> ascii_{};
};

class ScriptSplitter final : public Splitter {
 public:
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    constexpr int kNone = -2, kAny = -1;
    int last = kNone;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const int script = script_of(next_code_point(text, at));
      if (script == kAny) continue;
      if (script != last) {
        // What stands before the first script belongs to no piece.
        if (begin > 0) ends.push_back((base + begin) | (last == kNone ? kDropped : 0));
        last = script;
      }
    }
    ends.push_back((base + text.size()) | (last == kNone ? kDropped : 0));
  }
};

class DelimiterSplitter final : public Splitter {
 public:
  explicit DelimiterSplitter(std::string delimiter) : delimiter_(std::move(delimiter)) {}
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    Joiner joiner(SplitBehavior::removed, false, base, ends);
    size_t done = 0;
    for (size_t at = text.find(delimiter_); at != std::string_view::npos; at = text.find(delimiter_, done)) {
      joiner.add(done, at, false);
      joiner.add(at, at + delimiter_.size(), true);
      done = at + delimiter_.size();
    }
    joiner.add(done, text.size(), false);
  }

  AtCut at_cut() const override { return delimiter_ == " " ? AtCut::splits_at_spaces : AtCut::unknown; }

 private:
  std::string delimiter_;
};

class LengthSplitter final : public Splitter {
 public:
  explicit LengthSplitter(int64_t length) : length_(length) {}
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const override {
    int64_t characters = 0;
    for (size_t at = 0; at < text.size();) {
      next_code_point(text, at);
      if (++characters % length_ == 0 || at == text.size()) ends.push_back(base + at);
    }
  }

 private:
  int64_t length_;
};

ClassRunSplitter::Class whitespace_class(uint32_t c) {
  if (is_white_space(c)) return ClassRunSplitter::dropped;
  return is_word_character(c) ? ClassRunSplitter::run : ClassRunSplitter::other_run;
}
ClassRunSplitter::Class space_class(uint32_t c) {
  return is_white_space(c) ? ClassRunSplitter::dropped : ClassRunSplitter::run;
}
ClassRunSplitter::Class bert_class(uint32_t c) {
  if (is_white_space(c)) return ClassRunSplitter::dropped;
  return is_punctuation(c) ? ClassRunSplitter::single : ClassRunSplitter::run;
}

}  // namespace

std::unique_ptr<Splitter> make_pattern_splitter(const TextPattern& pattern, SplitBehavior behavior,
                                                bool invert, std::string_view element) {
  if (!pattern.is_regex) return std::make_unique<LiteralSplitter>(pattern.text, behavior, invert);
  // A fast splitter's pattern matches all of a text, so that inverting makes no difference when matches are
  // kept apart.
  const bool apart = behavior == SplitBehavior::isolated || (behavior == SplitBehavior::removed && invert);
  const FastSplitter fast = apart ? fast_splitter(pattern.text) : FastSplitter::none;
  if (fast != FastSplitter::none) return std::make_unique<FastPatternSplitter>(fast);
  return std::make_unique<RegexSplitter>(pattern.text, behavior, invert, element);
}

std::unique_ptr<Splitter> make_character_splitter(bool (*splits)(uint32_t), SplitBehavior behavior) {
  return std::make_unique<CharacterSplitter>(splits, behavior);
}

std::unique_ptr<Splitter> make_splitter(const PreTokenizerStep& step) {
  switch (step.kind) {
    case PreTokenizerKind::split:
      return make_pattern_splitter(step.pattern, step.behavior, step.invert, step.element);
    case PreTokenizerKind::digits:
      return make_character_splitter(
          is_numeric, step.individual_digits ? SplitBehavior::isolated : SplitBehavior::contiguous);
    case PreTokenizerKind::punctuation:
      return make_character_splitter(is_punctuation, step.behavior);
    case PreTokenizerKind::whitespace:
      return std::make_unique<ClassRunSplitter>(whitespace_class);
    case PreTokenizerKind::whitespace_split:
      return std::make_unique<ClassRunSplitter>(space_class);
    case PreTokenizerKind::bert:
      return std::make_unique<ClassRunSplitter>(bert_class);
    case PreTokenizerKind::unicode_scripts:
      return std::make_unique<ScriptSplitter>();
    case PreTokenizerKind::char_delimiter_split:
      return std::make_unique<DelimiterSplitter>(step.character);
    case PreTokenizerKind::fixed_length:
      return std::make_unique<LengthSplitter>(step.length);
    case PreTokenizerKind::byte_level:
    case PreTokenizerKind::metaspace:
      break;
  }
  fail("{}: this step is no split", step.element);
}

}  // namespace megalith
