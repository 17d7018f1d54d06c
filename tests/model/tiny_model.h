// A small model with random weights, and the oracle's view of it.
#pragma once

#include <cmath>
#include <memory>
#include <random>

#include "megalith/model/transformer.h"
#include "megalith/reference/model.h"
#include "tests/model/whole_model.h"

namespace megalith {

inline ModelConfig tiny_config(ModelForm form) {
  ModelConfig config = ModelConfig::defaults(form);
  config.vocab_size = 37;
  config.num_layers = 3;
  config.hidden_size = 24;
  config.num_heads = form == ModelForm::gpt2 ? 3 : 4;
  config.num_kv_heads = form == ModelForm::gpt2 ? 3 : 2;
  config.head_size = form == ModelForm::gpt2 ? 8 : 6;
  config.ffn_hidden_size = 40;
  config.max_positions = 32;
  config.vocab_multiple = 16;
  config.resolve();
  return config;
}

struct NamedConfig {
  std::string name;
  ModelConfig config;
};

/// Small models of other families, each with the choices that set it apart; heads can be shared by two ranks.
inline std::vector<NamedConfig> tiny_families() {
  std::vector<NamedConfig> all;
  const auto add = [&](const std::string& name, ModelForm form, auto&& change) {
    ModelConfig config = tiny_config(ModelForm::gpt2);
    ModelConfig family = ModelConfig::defaults(form);
    family.vocab_size = config.vocab_size;
    family.num_layers = config.num_layers;
    family.hidden_size = config.hidden_size;
    family.num_heads = family.num_kv_heads = 4;
    family.head_size = 8;
    family.ffn_hidden_size = config.ffn_hidden_size;
    family.max_positions = config.max_positions;
    family.vocab_multiple = config.vocab_multiple;
    change(family);
    family.resolve();
    all.push_back({name, family});
  };
  const auto nothing = [](ModelConfig&) {};
  add("gptj", ModelForm::gptj, [](ModelConfig& c) { c.rope_fraction = 0.5; });
  add("gpt_neox", ModelForm::gpt_neox, nothing);
  add("opt with norms behind branches", ModelForm::opt, [](ModelConfig& c) {
    c.norm_placement = NormPlacement::post;
    c.final_norm = false;
    c.activation = Activation::gelu_tanh;
  });
  add("bloom", ModelForm::bloom, [](ModelConfig& c) { c.num_heads = c.num_kv_heads = 6; });
  add("mistral", ModelForm::mistral, [](ModelConfig& c) {
    c.num_kv_heads = 2;
    c.window = 4;
  });
  add("qwen2 with windows in later layers, linear scaling", ModelForm::qwen2, [](ModelConfig& c) {
    c.window = 3;
    c.window_first_layer = 1;
    c.rope_scaling = RopeScaling::linear;
    c.rope_factor = 3;
  });
  add("qwen3", ModelForm::qwen3, [](ModelConfig& c) { c.num_kv_heads = 2; });
  add("gemma2", ModelForm::gemma2, [](ModelConfig& c) {
    c.embedding_scale = 4.5;
    c.window = 4;
    c.attention_scale = 0.5;
    c.attention_softcap = 2;
    c.logit_softcap = 1.5;
  });
  add("gemma3", ModelForm::gemma3, [](ModelConfig& c) {
    c.num_kv_heads = 2;
    c.window = 4;
    c.window_period = 3;
    c.rope_base = 1000;
    c.rope_window_base = 10;
    c.rope_scaling = RopeScaling::linear;
    c.rope_factor = 8;
    c.logit_scale = 0.5;
  });
  add("phi3 beyond its original context", ModelForm::phi3, [](ModelConfig& c) {
    c.rope_scaling = RopeScaling::longrope;
    c.rope_original_positions = 7;  // no test's batch is shorter
    c.rope_factor = 4;
    c.rope_short_factors = {1, 1, 1, 1};
    c.rope_long_factors = {1, 1.5, 2, 4};
  });
  add("bert", ModelForm::bert, [](ModelConfig& c) { c.pooler = true; });
  add("encoder with windows", ModelForm::gpt_neox, [](ModelConfig& c) {
    c.causal = false;
    c.window = 3;
  });
  return all;
}

/// A model with its buffers and everything that a pass needs.
struct TinyModel {
  /// The weights do not depend on `tensor`, of which the model is one rank's part.
  TinyModel(const ModelConfig& config, DType dtype, uint64_t seed, int threads = 2,
            const TensorParallel& tensor = {})
      : exec{workspace, threads}, model(config, tensor), saved(activations, transient) {
    buffers = std::make_unique<ParameterBuffers>(
        [this](const ParameterVisitor& visitor) { model.walk(visitor); }, dtype, weights, &gradients);
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal(0, 1);
    for (const ParameterSlot& slot : buffers->slots()) {
      const Parameter& parameter = *slot.parameter;
      const bool is_norm_weight = parameter.initialization.kind == Initialization::Kind::ones;
      std::vector<float> whole;
      for (int64_t i = 0; i < parameter.shape.elements(); ++i) {
        whole.push_back(static_cast<float>((is_norm_weight ? 1.0 : 0.0) + 0.2 * normal(generator)));
      }
      dispatch_float(dtype, [&]<class T>(std::type_identity<T>) {
        T* data = parameter.value.data<T>();
        parameter.slice.for_each_run(parameter.shape, 0, parameter.local_shape().elements(),
                                     [&](int64_t local, int64_t global, int64_t count) {
                                       for (int64_t i = 0; i < count; ++i) {
                                         data[local + i] =
                                             static_cast<T>(whole[static_cast<size_t>(global + i)]);
                                       }
                                     });
      });
    }
  }

  template <class T>
  reference::ParameterMap<T> parameter_map() const {
    reference::ParameterMap<T> map;
    for (const ParameterSlot& slot : buffers->slots()) {
      const Parameter& parameter = *slot.parameter;
      auto& values = map[parameter.name];
      dispatch_float(parameter.value.dtype(), [&]<class From>(std::type_identity<From>) {
        const From* data = parameter.value.data<From>();
        for (int64_t i = 0; i < parameter.shape.elements(); ++i)
          values.push_back(static_cast<T>(static_cast<float>(data[i])));
      });
    }
    return map;
  }

  Arena weights{"weights", 64u << 20}, gradients{"gradients", 64u << 20},
      activations{"activations", 256u << 20}, transient{"transient", 256u << 20},
      workspace{"workspace", 256u << 20};
  ExecContext exec;
  Transformer model;
  std::unique_ptr<ParameterBuffers> buffers;
  Saved saved;
};

inline reference::ModelShape reference_shape(const ModelConfig& config) {
  reference::ModelShape shape;
  shape.vocabulary = static_cast<int>(config.vocab_size);
  shape.layers = static_cast<int>(config.num_layers);
  shape.hidden = static_cast<int>(config.hidden_size);
  shape.heads = static_cast<int>(config.num_heads);
  shape.kv_heads = static_cast<int>(config.num_kv_heads);
  shape.head_size = static_cast<int>(config.head_size);
  shape.inner = static_cast<int>(config.ffn_hidden_size);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    reference::LayerRule& rule = shape.rules.emplace_back();
    const bool windowed = config.layer_has_window(layer);
    if (windowed) rule.window = static_cast<int>(config.window);
    const bool stretched = !windowed || config.rope_window_base == 0;
    const double base = stretched ? config.rope_base : config.rope_window_base;
    for (int64_t i = 0; i < config.rotary_columns() / 2; ++i) {
      rule.frequencies.push_back(
          std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(config.rotary_columns())));
      if (!stretched) continue;
      if (config.rope_scaling == RopeScaling::linear) rule.frequencies.back() /= config.rope_factor;
      // Batches of the tests are longer than the original context.
      if (config.rope_scaling == RopeScaling::longrope)
        rule.frequencies.back() /= config.rope_long_factors[static_cast<size_t>(i)];
    }
  }
  if (config.rope_scaling == RopeScaling::longrope) {
    shape.rope_magnitude = std::sqrt(1 + std::log(config.rope_factor) /
                                             std::log(static_cast<double>(config.rope_original_positions)));
  }
  shape.causal = config.causal;
  shape.alibi = config.positions == PositionKind::alibi;
  shape.attention_scale = config.attention_scale > 0 ? config.attention_scale
                                                     : 1 / std::sqrt(static_cast<double>(config.head_size));
  shape.attention_softcap = config.attention_softcap;
  shape.placement = static_cast<reference::NormPlacement>(config.norm_placement);
  shape.order = static_cast<reference::BranchOrder>(config.branches);
  shape.embedding_scale = config.embedding_scale;
  shape.logit_scale = config.logit_scale;
  shape.logit_softcap = config.logit_softcap;
  shape.centered_norm = config.norm == NormKind::layer;
  shape.epsilon = config.norm_epsilon;
  shape.activation = static_cast<reference::Activation>(config.activation);
  shape.tied = config.tied_embeddings;
  return shape;
}

/// A batch of random tokens; owns what the views point at.
struct TinyBatch {
  TinyBatch(int64_t batch, int64_t tokens, int64_t vocabulary, uint64_t seed) {
    std::mt19937_64 generator(seed);
    const size_t n = static_cast<size_t>(batch * tokens);
    for (size_t i = 0; i < n; ++i) {
      ids.push_back(static_cast<int32_t>(generator() % static_cast<uint64_t>(vocabulary)));
      targets.push_back(i % 7 == 3 ? -1
                                   : static_cast<int32_t>(generator() % static_cast<uint64_t>(vocabulary)));
      positions.push_back(static_cast<int32_t>(i % static_cast<size_t>(tokens)));
      weights.push_back(0.05f * static_cast<float>(1 + i % 3));
    }
    view.batch = batch;
    view.tokens = tokens;
  }
  /// Gives tokens types, for models that have them.
  void reset_types(int64_t count) {
    types.clear();
    for (size_t i = 0; count > 0 && i < ids.size(); ++i)
      types.push_back(static_cast<int32_t>(i / 2 % static_cast<size_t>(count)));
  }
  /// Cuts every row into documents at these columns.
  void reset_documents(const std::vector<int32_t>& bounds) {
    starts.clear();
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t column = static_cast<int32_t>(i % static_cast<size_t>(view.tokens));
      int32_t start = 0;
      for (const int32_t bound : bounds) {
        if (bound <= column) start = bound;
      }
      starts.push_back(start);
      positions[i] = column - start;
    }
  }
  const TokenBatch& tokens() {
    const int64_t n = view.rows();
    view.token_ids = {ids.data(), DType::i32, {n}};
    view.positions = {positions.data(), DType::i32, {n}};
    view.targets = {targets.data(), DType::i32, {n}};
    view.loss_weights = {weights.data(), DType::f32, {n}};
    if (!types.empty()) view.token_types = {types.data(), DType::i32, {n}};
    if (!starts.empty()) view.document_starts = {starts.data(), DType::i32, {view.batch, view.tokens}};
    return view;
  }
  reference::Tokens reference_tokens() const {
    reference::Tokens tokens;
    tokens.batch = static_cast<int>(view.batch);
    tokens.length = static_cast<int>(view.tokens);
    tokens.ids.assign(ids.begin(), ids.end());
    tokens.targets.assign(targets.begin(), targets.end());
    tokens.positions.assign(positions.begin(), positions.end());
    tokens.weights.assign(weights.begin(), weights.end());
    tokens.types.assign(types.begin(), types.end());
    tokens.starts.assign(starts.begin(), starts.end());
    return tokens;
  }

  std::vector<int32_t> ids, targets, positions, starts, types;
  std::vector<float> weights;
  TokenBatch view;
};

inline std::vector<float> losses_of(TinyModel& tiny, const TokenBatch& tokens,
                                    Recompute recompute = Recompute::none, bool gradient = true,
                                    bool training = false) {
  std::vector<float> losses(static_cast<size_t>(tokens.rows()));
  const TensorView view(losses.data(), DType::f32, {tokens.rows()});
  const Pass pass{tiny.exec, tokens, tiny.saved, recompute, training, 77};
  if (gradient) {
    tiny.buffers->forget_gradients();
    loss_and_gradient(tiny.model, pass, tiny.buffers->values().dtype(), view);
    tiny.buffers->finish_gradients(tiny.exec);
  } else {
    tiny.model.loss(pass, view);
  }
  return losses;
}

inline std::vector<float> gradients_of(const TinyModel& tiny) {
  const auto span = tiny.buffers->gradients().span<float>();
  return {span.begin(), span.end()};
}

}  // namespace megalith
