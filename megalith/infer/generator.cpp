#include "megalith/infer/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/infer/stop_matcher.h"

namespace megalith {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens of a prompt that go through the model at once; bounds the scratch memory of long prompts.
constexpr int64_t kPrefillChunk = 512;

}  // namespace

void check_tokenizer_fits(const LoadedModel& model, const Tokenizer& tokenizer) {
  check_input(tokenizer.vocab_size() <= model.config().vocab_size,
              "the tokenizer has {} tokens, the model only {}: they do not belong together",
              tokenizer.vocab_size(), model.config().vocab_size);
}

Generator::Generator(const LoadedModel& model, const Tokenizer& tokenizer, const ExecContext& exec)
    : model_(model), tokenizer_(tokenizer), exec_(exec) {
  check_tokenizer_fits(model, tokenizer);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.has_id(id)) unused_ids_.push_back(id);
  }
}

Generation Generator::generate(std::string_view prompt, const GenerateOptions& options,
                               const std::function<void(std::string_view)>& stream) {
  check_input(options.max_tokens >= 0, "max-tokens {} is out of range; allowed is 0 or more",
              options.max_tokens);
  // First of all, so that a wrong option costs no work.
  Sampler sampler(options.sampling);
  StopMatcher stops(options.stop);
  const ModelConfig& config = model_.config();
  Generation result;
  result.prompt_ids = tokenizer_.encode(prompt, EncodeOptions{options.parse_special, true});
  if (result.prompt_ids.empty()) {
    const auto first =
        tokenizer_.beginning_of_text() ? tokenizer_.beginning_of_text() : tokenizer_.end_of_document();
    check_input(first.has_value(), "the prompt is empty and the tokenizer has no token to begin a text with");
    result.prompt_ids.push_back(*first);
  }
  const int64_t prompt_tokens = static_cast<int64_t>(result.prompt_ids.size());
  check_input(prompt_tokens <= config.max_positions, "the prompt has {} tokens; the model's context holds {}",
              prompt_tokens, config.max_positions);
  // The last token needs no place in the cache.
  const int64_t room = config.max_positions - prompt_tokens + 1;
  const int64_t limit = std::min(options.max_tokens, room);
  Arena cache_arena("key/value cache");
  ModelCache cache =
      make_cache(config, model_.dtype(), prompt_tokens + std::max<int64_t>(limit - 1, 0), cache_arena);
  ArenaScope scope(exec_.workspace);
  const TensorView logits = exec_.workspace.allocate(DType::f32, {1, config.padded_vocabulary()});
  const std::span<const float> row(logits.data<float>(), static_cast<size_t>(tokenizer_.vocab_size()));
  const auto forward = [&](int32_t* ids, int64_t count, bool want_logits) {
    model_.model().forward_cached(exec_, TensorView(ids, DType::i32, {count}), cache,
                                  want_logits ? logits : TensorView());
    if (!want_logits) return;
    for (const int32_t id : unused_ids_) logits.data<float>()[id] = -INFINITY;
  };

  // Into an empty cache; the logits are those of the last token.
  const auto forward_text = [&](std::vector<int32_t>& ids) {
    const int64_t length = static_cast<int64_t>(ids.size());
    cache.length = 0;
    cache.whole_length = length;
    for (int64_t begin = 0; begin < length; begin += kPrefillChunk) {
      const int64_t count = std::min(kPrefillChunk, length - begin);
      forward(ids.data() + begin, count, begin + count == length);
    }
  };

  Clock::time_point start = Clock::now();
  if (limit > 0) forward_text(result.prompt_ids);
  result.prefill_seconds = seconds_since(start);

  start = Clock::now();
  StreamingDecoder decoder(tokenizer_, true);
  decoder.follow(result.prompt_ids);  // An answer goes on where the prompt ends.
  const auto show = [&](const std::string& text) {
    result.text += text;
    if (stream && !text.empty()) stream(text);
  };
  std::vector<int32_t> ends = options.end_of_text;
  if (ends.empty() && tokenizer_.end_of_document()) ends.push_back(*tokenizer_.end_of_document());
  if (options.ignore_end) ends.clear();
  std::vector<int32_t> history = result.prompt_ids;
  result.finish_reason = "length";
  for (int64_t i = 0; i < limit; ++i) {
    const int32_t token = sampler.sample(row, history, static_cast<uint64_t>(history.size()));
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      result.finish_reason = "stop";
      break;
    }
    result.token_ids.push_back(token);
    history.push_back(token);
    show(stops.push(decoder.push(token)));
    if (stops.stopped()) {
      result.finish_reason = "stop";
      break;
    }
    if (i + 1 == limit) break;
    if (config.keys_change_beyond(cache.length)) {
      forward_text(history);
    } else {
      int32_t next = token;
      forward(&next, 1, true);
    }
  }
  if (!stops.stopped()) {
    show(stops.push(decoder.flush()));
    show(stops.flush());
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

}  // namespace megalith
