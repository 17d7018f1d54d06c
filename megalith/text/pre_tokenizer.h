// Cuts a text into the pieces that the model encodes one by one.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "megalith/text/regex.h"
#include "megalith/text/split_pattern.h"

namespace megalith {

/// What becomes of the matches of a split pattern. (tokenizer.json's "Removed" would lose text, which a
/// byte-level tokenizer never does: only its inverted form is read, as isolated.)
enum class SplitBehavior { isolated, merged_with_previous, merged_with_next, contiguous };

/// One split: by a hand-written splitter where there is one, else by its regular expression.
class SplitStep {
 public:
  /// `element` names the JSON element in errors.
  SplitStep(std::string_view pattern, SplitBehavior behavior, bool invert, std::string_view element);

  /// Appends the ends of the pieces of `text`, plus `base`.
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const;
  FastSplitter fast() const { return fast_; }

 private:
  FastSplitter fast_ = FastSplitter::none;
  std::optional<Regex> regex_;
  SplitBehavior behavior_;
  bool invert_;
};

/// The splits of a tokenizer.json, one after the other, ended by the byte-level step.
class PreTokenizer {
 public:
  std::vector<SplitStep> steps;
  /// A space is put before a text that does not begin with one.
  bool add_prefix_space = false;

  /// Replaces `ends` by the ends of the pieces of `text`, which must be valid UTF-8. No piece is empty, the
  /// last one ends at text.size(). `scratch` is memory to reuse.
  void split(std::string_view text, std::vector<size_t>& ends, std::vector<size_t>& scratch) const;

  /// Whether a text can be cut at safe_cut() without changing the pieces.
  bool can_cut() const { return steps.size() == 1 && steps[0].fast() != FastSplitter::none; }
};

}  // namespace megalith
