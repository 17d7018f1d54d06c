// Models whose output is known in advance, written as checkpoints: no hook in the product is needed.
#pragma once

#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "megalith/model/model_files.h"
#include "megalith/tensor/tensor.h"

namespace megalith::testing {

/// A form whose blocks add nothing when their weights are zero: the head sees the normalised sum of token and
/// position embedding alone.
inline ModelConfig scripted_config(int64_t vocabulary, int64_t positions) {
  ModelConfig config = ModelConfig::defaults(ModelForm::gpt2);
  config.vocab_size = vocabulary;
  config.num_layers = 1;
  config.num_heads = 1;
  config.hidden_size = (positions + 7) / 8 * 8;
  config.ffn_hidden_size = 8;
  config.max_positions = positions;
  config.norm = NormKind::rms;  // LayerNorm would take the mean away, and so what several positions say alike
  config.tied_embeddings = false;
  config.vocab_multiple = 8;
  config.resolve();
  return config;
}

/// Writes a checkpoint whose tensors are zero (norm weights one) but for what `fill` sets. `fill` receives
/// the name and the elements of every tensor.
inline void write_model(const std::filesystem::path& directory, const ModelConfig& config,
                        const std::string& tokenizer_json,
                        const std::function<void(const std::string&, std::span<float>)>& fill) {
  Transformer model(config);
  std::vector<Tensor> storage;
  std::vector<CheckpointTensor> tensors;
  model.walk([&](Parameter& parameter) {
    storage.emplace_back(DType::f32, parameter.shape);
    const std::span<float> values = storage.back().view().span<float>();
    if (parameter.initialization.kind == Initialization::Kind::ones)
      std::fill(values.begin(), values.end(), 1.0f);
    fill(parameter.name, values);
    tensors.push_back({parameter.name, storage.back()});
  });
  CheckpointWriter writer(directory);
  writer.write_tensors("model.safetensors", tensors);
  writer.write_file("model.toml", model_config_to_toml(config));
  writer.write_file("tokenizer.json", tokenizer_json);
  writer.commit(0, "{}");
}

/// After position p the most likely token is script[p], whatever the text.
inline void write_scripted_model(const std::filesystem::path& directory, const std::string& tokenizer_json,
                                 int64_t vocabulary, const std::vector<int32_t>& script) {
  const ModelConfig config = scripted_config(vocabulary, static_cast<int64_t>(script.size()));
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  write_model(directory, config, tokenizer_json, [&](const std::string& name, std::span<float> values) {
    for (size_t p = 0; p < script.size(); ++p) {
      if (name == "embedding.position.weight") values[p * hidden + p] = 10;
      if (name == "head.weight") values[static_cast<size_t>(script[p]) * hidden + p] = 1;
    }
  });
}

/// Normally distributed weights, large enough that outputs differ between contexts.
inline void write_random_model(const std::filesystem::path& directory, const std::string& tokenizer_json,
                               const ModelConfig& config, uint64_t seed) {
  std::mt19937_64 generator(seed);
  write_model(directory, config, tokenizer_json, [&](const std::string& name, std::span<float> values) {
    if (name.find("norm") != std::string::npos) return;
    std::normal_distribution<float> normal(0, 0.3f);
    for (float& value : values) value = normal(generator);
  });
}

}  // namespace megalith::testing
