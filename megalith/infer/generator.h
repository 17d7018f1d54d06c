// Text generation from one prompt at a time, with a key/value cache.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/infer/sampler.h"
#include "megalith/model/model_files.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  /// Go on after the end-of-document token.
  bool ignore_end = false;
  /// Tokens that end the text; when there are none, the tokenizer's end-of-document token does.
  std::vector<int32_t> end_of_text = {};
  /// The text of special tokens in the prompt stands for those tokens.
  bool parse_special = false;
};

struct Generation {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> token_ids;  // new ones; an end token that ended the text is not among them
  std::string text;                // valid UTF-8; ends before a stop string
  std::string finish_reason;  // "stop" (end token or stop string) or "length" (max_tokens or a full context)
  double prefill_seconds = 0, decode_seconds = 0;
};

/// Throws InputError when the tokenizer has ids that the model has not.
void check_tokenizer_fits(const LoadedModel& model, const Tokenizer& tokenizer);

class Generator {
 public:
  /// Model and tokenizer must outlive the generator.
  Generator(const LoadedModel& model, const Tokenizer& tokenizer, const ExecContext& exec);

  /// `stream` receives the text as it comes, in whole characters; its parts joined are the result's text.
  /// Throws InputError when the prompt has no token (and the tokenizer no token to begin with) or fills the
  /// context.
  Generation generate(std::string_view prompt, const GenerateOptions& options,
                      const std::function<void(std::string_view)>& stream = {});

 private:
  const LoadedModel& model_;
  const Tokenizer& tokenizer_;
  const ExecContext& exec_;
  std::vector<int32_t> unused_ids_;  // below the vocabulary's size, without a token: never chosen
};

}  // namespace megalith
