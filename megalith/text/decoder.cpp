#include "megalith/text/decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/regex.h"

namespace megalith {

namespace {

// A stage takes the text of tokens in parts and hands it on. Between parts of one token nothing is decided
// that a later part could change.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual void text(std::string_view part) = 0;
  virtual void end_token() = 0;
  /// The last token has ended; afterwards the stage is as new.
  virtual void finish() { next->finish(); }

  Stage* next = nullptr;
};

// A stage that looks at whole tokens.
class TokenStage : public Stage {
 public:
  void text(std::string_view part) final { token_.append(part); }
  void end_token() final {
    whole(token_);
    token_.clear();
  }

 protected:
  virtual void whole(std::string_view token) = 0;
  void pass(std::string_view token) {
    next->text(token);
    next->end_token();
  }

 private:
  std::string token_;
};

class Output final : public Stage {
 public:
  void text(std::string_view part) override { out->append(part); }
  void end_token() override {}
  void finish() override {}
  std::string* out = nullptr;
};

class BytesStage final : public TokenStage {
 public:
  explicit BytesStage(const bool* literal) : literal_(literal) {}
  void whole(std::string_view token) override {
    const auto bytes = *literal_ ? std::nullopt : unspell_bytes(token);
    pass(bytes ? std::string_view(*bytes) : token);
  }

 private:
  const bool* literal_;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The English clean-up of the tokenizers library.
void clean_up(std::string& text) {
  constexpr std::pair<const char*, const char*> rules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules) replace_all(text, from, to);
}

class WordPieceStage final : public TokenStage {
 public:
  explicit WordPieceStage(const DecoderStep& step) : step_(step) {}
  void whole(std::string_view token) override {
    std::string text(token);
    if (!first_) {
      if (token.starts_with(step_.prefix)) {
        text.erase(0, step_.prefix.size());
      } else {
        text.insert(0, 1, ' ');
      }
    }
    first_ = false;
    if (step_.cleanup) clean_up(text);
    pass(text);
  }
  void finish() override {
    first_ = true;
    next->finish();
  }

 private:
  const DecoderStep& step_;
  bool first_ = true;
};

class MetaspaceStage final : public TokenStage {
 public:
  explicit MetaspaceStage(const DecoderStep& step) : step_(step) {}
  void whole(std::string_view token) override {
    std::string text(token);
    // The spaces of the first token are the ones that the pre-tokenizer put there.
    const bool drops = first_ && step_.prepend != PrependScheme::never;
    replace_all(text, step_.character, drops ? "" : " ");
    first_ = false;
    pass(text);
  }
  void finish() override {
    first_ = true;
    next->finish();
  }

 private:
  const DecoderStep& step_;
  bool first_ = true;
};

// Replaces a text as soon as it is complete: no more is held back than could be its begin.
class ReplaceTextStage final : public Stage {
 public:
  explicit ReplaceTextStage(const DecoderStep& step) : step_(step) {}
  void text(std::string_view part) override {
    held_.append(part);
    const std::string& pattern = step_.pattern.text;
    size_t done = 0;
    for (size_t at = held_.find(pattern); at != std::string::npos; at = held_.find(pattern, done)) {
      next->text(std::string_view(held_).substr(done, at - done));
      next->text(step_.content);
      done = at + pattern.size();
    }
    size_t keep = std::min(pattern.size() - 1, held_.size() - done);
    while (keep > 0 && pattern.compare(0, keep, held_, held_.size() - keep, keep) != 0) --keep;
    next->text(std::string_view(held_).substr(done, held_.size() - keep - done));
    held_.erase(0, held_.size() - keep);
  }
  void end_token() override {
    next->text(held_);
    held_.clear();
    next->end_token();
  }

 private:
  const DecoderStep& step_;
  std::string held_;
};

class ReplacePatternStage final : public TokenStage {
 public:
  ReplacePatternStage(const DecoderStep& step, const Regex& pattern) : step_(step), pattern_(pattern) {}
  void whole(std::string_view token) override {
    if (!is_valid_utf8(token)) return pass(token);
    std::string text;
    size_t done = 0, from = 0, begin = 0, end = 0;
    while (from <= token.size() && pattern_.find(token, from, begin, end)) {
      text.append(token.substr(done, begin - done)).append(step_.content);
      done = from = end;
      if (begin == end) {
        if (end >= token.size()) break;
        next_code_point(token, from);
      }
    }
    pass(text.append(token.substr(done)));
  }

 private:
  const DecoderStep& step_;
  const Regex& pattern_;
};

// "<0x0A>" becomes its byte. The bytes of neighbouring tokens are one token, whether or not they are UTF-8.
class ByteFallbackStage final : public TokenStage {
 public:
  void whole(std::string_view token) override {
    unsigned value = 0;
    const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with(">") &&
                      std::from_chars(token.data() + 3, token.data() + 5, value, 16).ptr == token.data() + 5;
    if (byte) {
      const char c = static_cast<char>(value);
      open_ = true;
      return next->text(std::string_view(&c, 1));
    }
    close();
    pass(token);
  }
  void finish() override {
    close();
    next->finish();
  }

 private:
  void close() {
    if (open_) next->end_token();
    open_ = false;
  }
  bool open_ = false;
};

// All tokens become one.
class FuseStage final : public Stage {
 public:
  void text(std::string_view part) override { next->text(part); }
  void end_token() override { any_ = true; }
  void finish() override {
    if (any_) next->end_token();
    any_ = false;
    next->finish();
  }

 private:
  bool any_ = false;
};

// Takes up to `start` characters away at the begin of each token, and up to `stop` at its end.
class StripStage final : public Stage {
 public:
  explicit StripStage(const DecoderStep& step) : step_(step), left_(step.start) {}
  void text(std::string_view part) override {
    while (left_ > 0 && !part.empty()) {
      if (!part.starts_with(step_.character)) {
        left_ = 0;
        break;
      }
      part.remove_prefix(step_.character.size());
      --left_;
    }
    if (part.empty()) return;
    size_t end = part.size();
    int64_t trailing = 0;
    while (step_.stop > 0 && part.substr(0, end).ends_with(step_.character)) {
      end -= step_.character.size();
      ++trailing;
    }
    if (end > 0) {
      release(held_);
      next->text(part.substr(0, end));
    }
    held_ += trailing;
    if (held_ > step_.stop) release(held_ - step_.stop);
  }
  void end_token() override {
    held_ = 0;
    left_ = step_.start;
    next->end_token();
  }

 private:
  void release(int64_t count) {
    for (int64_t i = 0; i < count; ++i) next->text(step_.character);
    held_ -= count;
  }
  const DecoderStep& step_;
  int64_t left_;
  int64_t held_ = 0;  // Characters at the end that may have to go.
};

// The suffix of a word becomes a space, but for the last token's.
class WordSuffixStage final : public TokenStage {
 public:
  explicit WordSuffixStage(const DecoderStep& step) : step_(step) {}
  void whole(std::string_view token) override {
    release(" ");
    held_ = token;
  }
  void finish() override {
    release("");
    next->finish();
  }

 private:
  void release(std::string_view space) {
    if (!held_) return;
    replace_all(*held_, step_.suffix, space);
    pass(*held_);
    held_.reset();
  }
  const DecoderStep& step_;
  std::optional<std::string> held_;
};

class CtcStage final : public TokenStage {
 public:
  explicit CtcStage(const DecoderStep& step) : step_(step) {}
  void whole(std::string_view token) override {
    if (last_ && *last_ == token) return;
    last_ = token;
    std::string text(token);
    replace_all(text, step_.pad_token, "");
    if (step_.cleanup) {
      clean_up(text);
      replace_all(text, step_.word_delimiter, " ");
    }
    if (!text.empty()) pass(text);
  }
  void finish() override {
    last_.reset();
    next->finish();
  }

 private:
  const DecoderStep& step_;
  std::optional<std::string> last_;
};

// Without a decoder, spaces stand between tokens.
class SpacesStage final : public TokenStage {
 public:
  void whole(std::string_view token) override {
    if (!first_) next->text(" ");
    first_ = false;
    pass(token);
  }
  void finish() override {
    first_ = true;
    next->finish();
  }

 private:
  bool first_ = true;
};

class Stages final : public DecodeStream {
 public:
  Stages(const std::vector<DecoderStep>& steps, const std::vector<std::shared_ptr<const Regex>>& patterns) {
    if (steps.empty()) stages_.push_back(std::make_unique<SpacesStage>());
    for (size_t i = 0; i < steps.size(); ++i) stages_.push_back(make(steps[i], patterns[i].get()));
    for (size_t i = 0; i < stages_.size(); ++i)
      stages_[i]->next = i + 1 < stages_.size() ? stages_[i + 1].get() : &output_;
  }
  void token(std::string_view text, bool literal, std::string& out) override {
    output_.out = &out;
    literal_ = literal;
    stages_.front()->text(text);
    stages_.front()->end_token();
  }
  void finish(std::string& out) override {
    output_.out = &out;
    stages_.front()->finish();
  }

 private:
  std::unique_ptr<Stage> make(const DecoderStep& step, const Regex* pattern) const {
    switch (step.kind) {
      case DecoderKind::byte_level:
        return std::make_unique<BytesStage>(&literal_);
      case DecoderKind::word_piece:
        return std::make_unique<WordPieceStage>(step);
      case DecoderKind::metaspace:
        return std::make_unique<MetaspaceStage>(step);
      case DecoderKind::replace:
        if (pattern != nullptr) return std::make_unique<ReplacePatternStage>(step, *pattern);
        return std::make_unique<ReplaceTextStage>(step);
      case DecoderKind::byte_fallback:
        return std::make_unique<ByteFallbackStage>();
      case DecoderKind::fuse:
        return std::make_unique<FuseStage>();
      case DecoderKind::strip:
        return std::make_unique<StripStage>(step);
      case DecoderKind::bpe:
        return std::make_unique<WordSuffixStage>(step);
      case DecoderKind::ctc:
        return std::make_unique<CtcStage>(step);
    }
    fail("{}: unknown decoder", step.element);
  }

  std::vector<std::unique_ptr<Stage>> stages_;
  Output output_;
  bool literal_ = false;
};

}  // namespace

Decoder::Decoder(const std::vector<DecoderStep>& steps) : steps_(steps) {
  for (const DecoderStep& step : steps_) {
    patterns_.push_back(step.pattern.is_regex ? std::make_shared<const Regex>(step.pattern.text, step.element)
                                              : nullptr);
  }
}

std::unique_ptr<DecodeStream> Decoder::start() const {
  return std::make_unique<Stages>(steps_, patterns_);
}

}  // namespace megalith
