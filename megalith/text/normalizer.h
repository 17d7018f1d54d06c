// Changes a text before it is split: normal forms of Unicode, case, white space, replacements.
#pragma once

#include <memory>
#include <vector>

#include "megalith/text/aligned_text.h"
#include "megalith/text/tokenizer_description.h"

namespace megalith {

/// Where a part of a text stands in the whole.
struct PartPlace {
  bool at_begin = true;
  bool at_end = true;
  /// Parts begin behind added tokens too; this is the begin of all.
  bool at_text_begin = true;
};

/// One step. A step is told where its text stands, because what concerns the begin or the end of a text must
/// not happen where a long text has been cut.
class NormalizerOperation {
 public:
  virtual ~NormalizerOperation() = default;
  /// Replaces `out`; returns false, with `out` undefined, when nothing would change.
  virtual bool apply(const AlignedText& in, AlignedText& out, PartPlace place) const = 0;
  /// Whether a text may be cut where safe_cut() cuts, and its parts treated one by one.
  virtual bool can_cut() const { return true; }
  /// What a space becomes.
  virtual std::string_view space() const { return " "; }
  /// Whether text in ASCII is always left as it is.
  virtual bool keeps_ascii() const { return false; }
};

class Normalizer {
 public:
  Normalizer() = default;
  /// Throws InputError naming the step for a pattern or a character map that is wrong.
  explicit Normalizer(const std::vector<NormalizerStep>& steps);

  bool empty() const { return operations_.empty(); }
  bool can_cut() const;
  /// What a space between letters becomes: itself, or another text.
  std::string_view space() const;
  /// Whether `text` would stay as it is; false when that takes more than a glance to find out.
  bool surely_keeps(std::string_view text) const;
  /// `scratch` is memory to reuse.
  void apply(AlignedText& text, AlignedText& scratch, PartPlace place) const;

 private:
  std::vector<std::unique_ptr<NormalizerOperation>> operations_;
  bool keeps_ascii_ = true;
};

}  // namespace megalith
