// Cuts a text into the pieces that the model encodes one by one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "megalith/text/aligned_text.h"
#include "megalith/text/normalizer.h"
#include "megalith/text/regex.h"
#include "megalith/text/split_pattern.h"
#include "megalith/text/tokenizer_description.h"

namespace megalith {

/// Pieces are a row of ends: each begins where the one before ends, and the last ends with the text. The end
/// of a piece that is left out carries this mark.
inline constexpr size_t kDropped = ~(~size_t{0} >> 1);
inline size_t end_of(size_t marked) {
  return marked & ~kDropped;
}
inline bool is_dropped(size_t marked) {
  return (marked & kDropped) != 0;
}

/// What a split does where safe_cut() would cut a text.
enum class AtCut {
  unknown,
  /// It never splits there, and what it does elsewhere does not depend on what is behind the cut.
  keeps,
  /// It always splits there when the cut stands before a space.
  splits_at_spaces,
  /// It always splits there.
  splits,
};

class Model;

/// One split of a text, which it leaves as it is.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// Appends the ends of the pieces of `text` (valid UTF-8, not empty), plus `base`.
  virtual void split(std::string_view text, size_t base, std::vector<size_t>& ends) const = 0;
  virtual AtCut at_cut() const { return AtCut::unknown; }
  /// The text before which it splits when it does not look for white space; empty when it does.
  virtual std::string_view space() const { return {}; }
};

/// The steps of a tokenizer, one after the other.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// A last ByteLevel step spells the bytes in another alphabet; with `keep_bytes` it does not, for a model
  /// that works on the bytes themselves. Throws InputError naming the step.
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, bool keep_bytes);

  /// A last step cuts where the model can join nothing. The model must outlive the pre-tokenizer.
  void add_words_of(const Model& model);

  /// Whether every step leaves the text as it is, so that split() serves.
  bool only_splits() const { return only_splits_; }
  /// Replaces `ends` by the ends of the pieces of `text` (valid UTF-8). No piece is empty. `scratch` is
  /// memory to reuse.
  void split(std::string_view text, std::vector<size_t>& ends, std::vector<size_t>& scratch) const;

  /// The same for any steps; the text may change.
  void run(AlignedText& text, AlignedText& other, PartPlace place, std::vector<size_t>& ends,
           std::vector<size_t>& scratch) const;

  /// What all steps together do where a text could be cut; `space` is what spaces have become before.
  AtCut at_cut(std::string_view space) const;
  /// Whether it matters if a part begins where the text does.
  bool asks_for_begin() const { return asks_for_begin_; }
  /// A space is put before a text that does not begin with one (with `keep_bytes`).
  bool add_prefix_space() const { return add_prefix_space_; }

 private:
  // A split, or a change of each piece's text.
  struct Step {
    std::unique_ptr<Splitter> splitter;
    bool only_at_spaces = false;  // Splits at nothing but the literal " ".
    std::optional<PreTokenizerStep> rewrite;
  };
  void rewrite(const PreTokenizerStep& step, AlignedText& text, AlignedText& other, PartPlace place,
               std::vector<size_t>& ends, std::vector<size_t>& scratch) const;

  std::vector<Step> steps_;
  const Splitter* words_ = nullptr;
  bool only_splits_ = true;
  bool add_prefix_space_ = false;
  bool asks_for_begin_ = false;
};

}  // namespace megalith
