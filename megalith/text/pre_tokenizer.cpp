#include "megalith/text/pre_tokenizer.h"

#include "megalith/base/utf8.h"

namespace megalith {

SplitStep::SplitStep(std::string_view pattern, SplitBehavior behavior, bool invert, std::string_view element)
    : behavior_(behavior), invert_(invert) {
  // A fast splitter's pattern matches all of a text, so that inverting or not makes no difference when
  // isolated.
  if (behavior == SplitBehavior::isolated) fast_ = fast_splitter(pattern);
  if (fast_ == FastSplitter::none) regex_.emplace(pattern, element);
}

void SplitStep::split(std::string_view text, size_t base, std::vector<size_t>& ends) const {
  if (fast_ != FastSplitter::none) return split_fast(fast_, text, base, ends);
  // The text is a row of parts, matches and the gaps between them; the behavior says which neighbours are
  // joined.
  const size_t first_end = ends.size();
  bool previous_is_match = false;
  const auto add = [&](size_t begin, size_t end, bool found) {
    if (begin == end) return;
    const bool match = found != invert_;
    const bool has_previous = ends.size() > first_end;
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::merged_with_previous:
        join = has_previous && match && !previous_is_match;
        break;
      case SplitBehavior::merged_with_next:
        join = has_previous && !match && previous_is_match;
        break;
      case SplitBehavior::contiguous:
        join = has_previous && match == previous_is_match;
        break;
    }
    if (join) {
      ends.back() = base + end;
    } else {
      ends.push_back(base + end);
    }
    previous_is_match = match;
  };
  size_t done = 0, from = 0, begin = 0, end = 0;
  while (from <= text.size() && regex_->find(text, from, begin, end)) {
    if (begin == end) {  // An empty match splits nothing.
      if (begin >= text.size()) break;
      from = begin;
      next_code_point(text, from);
      continue;
    }
    add(done, begin, false);
    add(begin, end, true);
    done = from = end;
  }
  add(done, text.size(), false);
}

void PreTokenizer::split(std::string_view text, std::vector<size_t>& ends,
                         std::vector<size_t>& scratch) const {
  ends.clear();
  if (text.empty()) return;
  if (steps.empty()) {
    ends.push_back(text.size());
    return;
  }
  steps[0].split(text, 0, ends);
  for (size_t i = 1; i < steps.size(); ++i) {
    scratch.swap(ends);
    ends.clear();
    size_t begin = 0;
    for (const size_t end : scratch) {
      steps[i].split(text.substr(begin, end - begin), begin, ends);
      begin = end;
    }
  }
}

}  // namespace megalith
