// Perplexity of a text under a model, by a sliding window.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/model_files.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

struct PerplexityOptions {
  /// Tokens that the model sees at once.
  int64_t window = 1024;
  /// Tokens by which the window moves; every window after the first scores its last `stride` tokens, so each
  /// scored token but those of the first window has at least window - stride tokens of context (Megatron-LM's
  /// WikiText protocol: 1024 and 32).
  int64_t stride = 512;
  /// Windows that go through the model together.
  int64_t batch = 4;
};

/// Sums over the scored tokens: all but the first of the text, which has no context; or all of them where the
/// tokenizer begins texts with a token of its own, which then takes the place of the first token of every
/// window (as in llama.cpp: models trained so lose much without it). The figures that are
/// derived from them: token perplexity exp(nll / tokens), word perplexity exp(nll / words), bits per byte nll
/// / ln 2 / bytes.
struct PerplexityResult {
  double negative_log_likelihood = 0;  // nats
  int64_t tokens = 0;
  int64_t words = 0;  // of the original text, separated by white space
  int64_t bytes = 0;  // of the scored tokens
  int64_t window = 0, stride = 0;
  bool begins_with_special = false;

  double token_perplexity() const;
  double word_perplexity() const;
  double bits_per_byte() const;
};

/// A window over tokens [begin, begin + length): inputs begin .. , of whose predictions those from
/// `first_scored` on count.
struct PerplexityWindow {
  int64_t begin = 0;
  int64_t length = 0;        // inputs; the targets are one further
  int64_t first_scored = 0;  // index into the window
};

/// Windows that score every token of `tokens` but the first exactly once.
std::vector<PerplexityWindow> perplexity_windows(int64_t tokens, const PerplexityOptions& options);

/// Throws InputError when the text has fewer than two tokens or the window exceeds the model's positions.
/// `progress` (may be empty) receives the scored tokens so far and in all.
PerplexityResult perplexity(const LoadedModel& model, const Tokenizer& tokenizer, std::string_view text,
                            const PerplexityOptions& options, const ExecContext& exec,
                            const std::function<void(int64_t, int64_t)>& progress = {});

/// The same text under a unigram model: token counts (by id) with one added to each.
PerplexityResult unigram_perplexity(const std::vector<int64_t>& counts, const Tokenizer& tokenizer,
                                    std::string_view text);

/// Words of a text: runs of bytes that are not ASCII white space.
int64_t count_words(std::string_view text);

}  // namespace megalith
