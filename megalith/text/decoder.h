// Tokens back to text, one token at a time: what a whole decode gives is what a stream gives, joined.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/text/tokenizer_description.h"

namespace megalith {

class Regex;

/// The state of one text that is being decoded.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  /// Appends to `out` what is certain now that a token has come. The text of a `literal` token (an added one)
  /// is not spelled in the byte alphabet.
  virtual void token(std::string_view text, bool literal, std::string& out) = 0;
  /// Appends what was held back. The stream is at its begin again.
  virtual void finish(std::string& out) = 0;
};

class Decoder {
 public:
  Decoder() = default;
  /// Throws InputError naming the step.
  explicit Decoder(const std::vector<DecoderStep>& steps);

  /// Whether texts are the bytes of their tokens (byte-level pieces), joined.
  bool joins_bytes() const { return steps_.size() == 1 && steps_[0].kind == DecoderKind::byte_level; }
  /// The decoder must outlive the stream.
  std::unique_ptr<DecodeStream> start() const;

 private:
  std::vector<DecoderStep> steps_;
  std::vector<std::shared_ptr<const Regex>> patterns_;  // Of each step; null for most.
};

}  // namespace megalith
