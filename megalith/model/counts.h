// Parameters and floating-point operations of a model, from the same walk that training uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/model/model_config.h"

namespace megalith {

/// A row of the model's table of parts.
struct PartCount {
  std::string part;
  int64_t parameters = 0;
};

/// Parameters by part (token, position and token type embedding, attention, feed-forward, norms, output head,
/// pooler) without padding.
std::vector<PartCount> count_parts(const ModelConfig& config);

/// All parameters; with `padded`, the vocabulary tables count with their padding, as the papers do.
int64_t count_parameters(const ModelConfig& config, bool padded = false);

/// Floating-point operations of one forward pass over one token of a sequence of `tokens`: matrix products of
/// blocks and head, and attention counted in full (not halved for the causal mask), as Narayanan et al. 2021
/// (eq. 3) do, but for layers with a window, where a token sees no more than the window. A training step is
/// three times that.
double forward_flops_per_token(const ModelConfig& config, int64_t tokens);

}  // namespace megalith
