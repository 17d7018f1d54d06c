#include "megalith/eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megalith/base/error.h"
#include "megalith/infer/generator.h"

namespace megalith {

namespace {

// Sets what does not depend on the model.
PerplexityResult start_result(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                              std::string_view text) {
  PerplexityResult result;
  result.words = count_words(text);
  result.tokens = static_cast<int64_t>(ids.size()) - 1;
  // All but what the first token, which is not predicted, stands for.
  result.bytes = static_cast<int64_t>(tokenizer.decode(ids).size()) -
                 static_cast<int64_t>(tokenizer.decode(ids.first(1)).size());
  return result;
}

// With the beginning-of-text token in front if the tokenizer adds one.
std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  if (const auto beginning = tokenizer.beginning_of_text()) ids.push_back(*beginning);
  tokenizer.encode_append(text, EncodeOptions{}, ids);
  check_input(ids.size() >= 2, "the text has {} tokens; perplexity needs two or more", ids.size());
  return ids;
}

}  // namespace

double PerplexityResult::token_perplexity() const {
  return std::exp(negative_log_likelihood / static_cast<double>(tokens));
}
double PerplexityResult::word_perplexity() const {
  return words > 0 ? std::exp(negative_log_likelihood / static_cast<double>(words)) : INFINITY;
}
double PerplexityResult::bits_per_byte() const {
  return negative_log_likelihood / std::numbers::ln2 / static_cast<double>(bytes);
}

std::vector<PerplexityWindow> perplexity_windows(int64_t tokens, const PerplexityOptions& options) {
  check_input(options.window >= 1, "window {} is out of range; allowed is 1 or more", options.window);
  check_input(options.stride >= 1 && options.stride <= options.window,
              "stride {} is out of range; allowed is 1 to the window, {}", options.stride, options.window);
  std::vector<PerplexityWindow> windows;
  const int64_t targets = tokens - 1;
  int64_t scored = std::min(options.window, targets);
  if (scored > 0) windows.push_back({0, scored, 0});
  while (scored < targets) {
    const int64_t next = std::min(scored + options.stride, targets);
    const int64_t begin = std::max<int64_t>(0, next - options.window);
    windows.push_back({begin, next - begin, scored - begin});
    scored = next;
  }
  return windows;
}

PerplexityResult perplexity(const LoadedModel& loaded, const Tokenizer& tokenizer, std::string_view text,
                            const PerplexityOptions& options, const ExecContext& exec,
                            const std::function<void(int64_t, int64_t)>& progress) {
  check_input(loaded.config().predicts_next_token(),
              "perplexity needs a model that predicts the next token; this one is an encoder or has no "
              "language model head");
  check_input(options.window <= loaded.config().max_positions, "window {} exceeds the model's {} positions",
              options.window, loaded.config().max_positions);
  check_input(options.batch >= 1, "batch {} is out of range; allowed is 1 or more", options.batch);
  check_tokenizer_fits(loaded, tokenizer);
  const std::vector<int32_t> ids = encode(tokenizer, text);
  PerplexityResult result = start_result(tokenizer, ids, text);
  result.window = options.window;
  result.stride = options.stride;
  const auto beginning = tokenizer.beginning_of_text();
  result.begins_with_special = beginning.has_value();
  const auto windows = perplexity_windows(static_cast<int64_t>(ids.size()), options);
  Arena saved_arena("activations");
  Saved saved(saved_arena);
  int64_t done = 0;
  for (size_t first = 0; first < windows.size();) {
    // Windows of equal length go together.
    size_t last = first;
    while (last < windows.size() && last - first < static_cast<size_t>(options.batch) &&
           windows[last].length == windows[first].length) {
      ++last;
    }
    TokenBatch batch;
    batch.batch = static_cast<int64_t>(last - first);
    batch.tokens = windows[first].length;
    ArenaScope scope(exec.workspace);
    batch.token_ids = exec.workspace.allocate(DType::i32, {batch.rows()});
    batch.positions = exec.workspace.allocate(DType::i32, {batch.rows()});
    batch.targets = exec.workspace.allocate(DType::i32, {batch.rows()});
    for (size_t w = first; w < last; ++w) {
      const PerplexityWindow& window = windows[w];
      for (int64_t t = 0; t < window.length; ++t) {
        const int64_t at = static_cast<int64_t>(w - first) * batch.tokens + t;
        batch.token_ids.data<int32_t>()[at] =
            t == 0 && beginning ? *beginning : ids[static_cast<size_t>(window.begin + t)];
        batch.positions.data<int32_t>()[at] = static_cast<int32_t>(t);
        batch.targets.data<int32_t>()[at] =
            t >= window.first_scored ? ids[static_cast<size_t>(window.begin + t + 1)] : -1;
      }
      done += window.length - window.first_scored;
    }
    const TensorView losses = exec.workspace.allocate(DType::f32, {batch.rows()});
    loaded.model().loss(Pass{exec, batch, saved}, losses);
    for (const float loss : losses.span<float>()) result.negative_log_likelihood += loss;
    if (progress) progress(done, result.tokens);
    first = last;
  }
  return result;
}

PerplexityResult unigram_perplexity(const std::vector<int64_t>& counts, const Tokenizer& tokenizer,
                                    std::string_view text) {
  const std::vector<int32_t> ids = encode(tokenizer, text);
  PerplexityResult result = start_result(tokenizer, ids, text);
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count) + 1;
  for (size_t i = 1; i < ids.size(); ++i) {
    check_input(static_cast<size_t>(ids[i]) < counts.size(), "token {} lies outside the {} that were counted",
                ids[i], counts.size());
    result.negative_log_likelihood -=
        std::log((static_cast<double>(counts[static_cast<size_t>(ids[i])]) + 1) / total);
  }
  return result;
}

int64_t count_words(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space && !inside) ++words;
    inside = !space;
  }
  return words;
}

}  // namespace megalith
