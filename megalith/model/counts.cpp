#include "megalith/model/counts.h"

#include <algorithm>

#include "megalith/model/transformer.h"

namespace megalith {

namespace {

std::string part_of(const std::string& name) {
  if (name.starts_with("embedding.token.")) return "token embedding";
  if (name.starts_with("embedding.position")) return "position embedding";
  if (name.starts_with("embedding.token_type")) return "token type embedding";
  if (name.find("norm") != std::string::npos) return "norms";
  if (name.starts_with("pooler.")) return "pooler";
  if (name.find(".attention.") != std::string::npos) return "attention";
  if (name.find(".feed_forward.") != std::string::npos) return "feed-forward";
  return "output head";
}

}  // namespace

std::vector<PartCount> count_parts(const ModelConfig& config) {
  std::vector<PartCount> parts;
  Transformer model(config);
  model.walk([&](Parameter& parameter) {
    const std::string part = part_of(parameter.name);
    for (PartCount& entry : parts) {
      if (entry.part == part) {
        entry.parameters += parameter.shape.elements();
        return;
      }
    }
    parts.push_back({part, parameter.shape.elements()});
  });
  return parts;
}

int64_t count_parameters(const ModelConfig& config, bool padded) {
  int64_t total = 0;
  Transformer model(config);
  model.walk([&](Parameter& parameter) {
    total += padded ? parameter.allocated_shape().elements() : parameter.shape.elements();
  });
  return total;
}

double forward_flops_per_token(const ModelConfig& config, int64_t tokens) {
  double multiply_adds = 0;
  Transformer model(config);
  model.walk([&](Parameter& parameter) {
    // Matrices of the blocks act once on every token; tables of embeddings are looked up, and a pooler acts
    // on one token of a sequence.
    if (parameter.shape.rank() == 2 && !parameter.name.starts_with("embedding.") &&
        !parameter.name.starts_with("pooler.") && parameter.name != "head.weight") {
      multiply_adds += static_cast<double>(parameter.shape.elements());
    }
  });
  if (config.head != HeadKind::none) {
    multiply_adds += static_cast<double>(config.padded_vocabulary() * config.hidden_size);
  }
  // Scores and weighted values: 2 x keys x heads x head size a layer.
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t keys = config.layer_has_window(layer) ? std::min(tokens, config.window) : tokens;
    multiply_adds +=
        2.0 * static_cast<double>(keys) * static_cast<double>(config.num_heads * config.head_size);
  }
  return 2.0 * multiply_adds;
}

}  // namespace megalith
