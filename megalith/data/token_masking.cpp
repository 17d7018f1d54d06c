#include "megalith/data/token_masking.h"

#include <algorithm>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/random.h"

namespace megalith {

namespace {

std::optional<int32_t> find_mask_token(const Tokenizer& tokenizer, const std::string& mask_token) {
  if (!mask_token.empty()) return tokenizer.id_of(mask_token);
  for (const char* known : {"[MASK]", "<mask>"}) {
    if (const auto id = tokenizer.id_of(known)) return id;
  }
  return std::nullopt;
}

}  // namespace

TokenMasking::TokenMasking(const Tokenizer& tokenizer, const std::string& mask_token, double share,
                           uint64_t seed)
    : share_(static_cast<float>(share)), seed_(seed) {
  const std::optional<int32_t> id = find_mask_token(tokenizer, mask_token);
  check_input(id.has_value(),
              "a masked language model needs a token that hides others: the tokenizer has no {}; name one of "
              "its tokens in data.mask_token",
              mask_token.empty() ? "[MASK] or <mask>" : "'" + mask_token + "'");
  mask_token_ = *id;
  special_.resize(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t token = 0; token < special_.size(); ++token) {
    special_[token] = tokenizer.is_special(static_cast<int32_t>(token));
  }
}

int64_t TokenMasking::apply(uint64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets,
                            std::span<float> loss_mask) const {
  const RandomStream stream(seed_, RandomUse::token_masking, sample);
  std::copy(tokens.begin(), tokens.end(), targets.begin());
  const auto predict = [&](size_t t) {
    const auto words = stream.block(t);
    loss_mask[t] = 1.0f;
    const float draw = unit_float(words[1]);
    if (draw < 0.8f) {
      tokens[t] = mask_token_;
    } else if (draw < 0.9f) {
      tokens[t] = static_cast<int32_t>(uint64_t{words[2]} * special_.size() >> 32);
    }
  };
  int64_t predicted = 0;
  size_t lowest = tokens.size();
  float lowest_draw = 2;
  for (size_t t = 0; t < tokens.size(); ++t) {
    loss_mask[t] = 0.0f;
    // Tokens beyond the tokenizer's (a padded vocabulary) are none of its special ones.
    const auto id = static_cast<size_t>(tokens[t]);
    if (id < special_.size() && special_[id]) continue;
    const float draw = unit_float(stream.block(t)[0]);
    if (draw < lowest_draw) {
      lowest_draw = draw;
      lowest = t;
    }
    if (draw >= share_) continue;
    predict(t);
    ++predicted;
  }
  if (predicted == 0 && lowest < tokens.size()) {
    predict(lowest);
    predicted = 1;
  }
  return predicted;
}

}  // namespace megalith
