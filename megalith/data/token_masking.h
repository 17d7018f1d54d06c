// What a masked language model is trained on (BERT; Devlin et al. 2019, section 3.1): some tokens of a sample
// are to be predicted from all the others, and most of them are hidden.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megalith/text/tokenizer.h"

namespace megalith {

class TokenMasking {
 public:
  /// Each token is predicted with probability `share`; of those tokens 80 % become `mask_token`, 10 % any
  /// token of the vocabulary, and 10 % stay. Special tokens are never predicted. An empty `mask_token` looks
  /// for
  /// "[MASK]" and "<mask>". Throws InputError when the tokenizer has no such token.
  TokenMasking(const Tokenizer& tokenizer, const std::string& mask_token, double share, uint64_t seed);

  /// Masks the tokens of sample number `sample`: `targets` become the tokens before, `loss_mask` 1 where a
  /// token is to be predicted and else 0. Gives the number of those tokens: at least one, where there is any
  /// that is not special. What is drawn depends on seed, sample and column alone. All spans have the sample's
  /// length.
  int64_t apply(uint64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets,
                std::span<float> loss_mask) const;

 private:
  float share_;
  uint64_t seed_;
  int32_t mask_token_;
  std::vector<bool> special_;  // by id
};

}  // namespace megalith
