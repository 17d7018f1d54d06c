#include "megalith/infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/base/random.h"

namespace megalith {

void SamplingOptions::validate() const {
  check_input(temperature >= 0 && std::isfinite(temperature),
              "temperature {} is out of range; allowed is 0 or more", temperature);
  check_input(top_k >= 0, "top-k {} is out of range; allowed is 0 or more", top_k);
  check_input(top_p >= 0 && top_p <= 1, "top-p {} is out of range; allowed is 0 to 1", top_p);
  check_input(min_p >= 0 && min_p <= 1, "min-p {} is out of range; allowed is 0 to 1", min_p);
  check_input(repetition_penalty > 0 && std::isfinite(repetition_penalty),
              "repetition-penalty {} is out of range; allowed is above 0", repetition_penalty);
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  options.validate();
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history, uint64_t position) {
  adjusted_.assign(logits.begin(), logits.end());
  if (options_.repetition_penalty != 1.0) {
    const float penalty = static_cast<float>(options_.repetition_penalty);
    // Each token once, however often it occurred: values come from the untouched logits.
    for (const int32_t token : history) {
      if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
      const float logit = logits[static_cast<size_t>(token)];
      adjusted_[static_cast<size_t>(token)] = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  const auto more_likely = [](const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  };
  candidates_.clear();
  for (size_t i = 0; i < adjusted_.size(); ++i) {
    check(!std::isnan(adjusted_[i]), "the model gave NaN as the logit of token {}", i);
    candidates_.emplace_back(adjusted_[i], static_cast<int32_t>(i));
  }
  check(!candidates_.empty(), "there is no token to choose from");
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), more_likely);
  check(std::isfinite(best->first), "the largest logit, of token {}, is {}", best->second, best->first);
  if (options_.temperature == 0 || options_.top_k == 1 || options_.top_p == 0) return best->second;
  // Relative to the largest, so that neither a tiny nor a huge temperature overflows.
  const double largest = best->first;
  // Only the filters need an order; without them a sort of the whole vocabulary would cost more than a small
  // model.
  if (options_.top_k > 0 || options_.top_p < 1 || options_.min_p > 0) {
    const size_t keep = options_.top_k > 0 ? std::min(candidates_.size(), static_cast<size_t>(options_.top_k))
                                           : candidates_.size();
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(keep),
                      candidates_.end(), more_likely);
    candidates_.resize(keep);
  }
  probabilities_.clear();
  double total = 0;
  for (const auto& [logit, token] : candidates_) {
    probabilities_.push_back(std::exp((static_cast<double>(logit) - largest) / options_.temperature));
    total += probabilities_.back();
  }
  size_t count = candidates_.size();
  if (options_.top_p < 1) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      sum += probabilities_[i];
      if (sum >= options_.top_p * total) count = i + 1;
    }
  }
  while (count > 1 && probabilities_[count - 1] < options_.min_p) --count;  // The largest is 1.
  total = 0;
  for (size_t i = 0; i < count; ++i) total += probabilities_[i];
  const RandomStream stream(options_.seed, RandomUse::sampling, 0);
  double left = static_cast<double>(stream.word64(position) >> 11) * 0x1.0p-53 * total;
  for (size_t i = 0; i < count; ++i) {
    left -= probabilities_[i];
    if (left < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace megalith
