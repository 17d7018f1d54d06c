// ModelConfig: every choice that makes a decoder-only transformer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "megalith/base/config.h"
#include "megalith/ops/activation.h"
#include "megalith/ops/norm.h"

namespace megalith {

/// A named set of defaults.
enum class ModelForm { gpt2, llama };
inline constexpr std::array<std::string_view, 2> kModelFormNames = {"gpt2", "llama"};

enum class PositionKind { learned, rope };
inline constexpr std::array<std::string_view, 2> kPositionKindNames = {"learned", "rope"};

inline constexpr std::array<std::string_view, 2> kNormKindNames = {"layernorm", "rmsnorm"};
inline constexpr std::array<std::string_view, 7> kActivationNames = {
    "gelu_tanh", "gelu_erf", "relu", "silu", "swiglu", "geglu_tanh", "geglu_erf"};

struct ModelConfig {
  ModelForm form = ModelForm::gpt2;
  int64_t vocab_size = 0;  // 0: taken from the tokenizer
  int64_t num_layers = 12;
  int64_t hidden_size = 768;
  int64_t num_heads = 12;
  int64_t num_kv_heads = 0;     // 0: num_heads
  int64_t head_size = 0;        // 0: hidden_size / num_heads
  int64_t ffn_hidden_size = 0;  // 0: 4 x hidden_size, or 8/3 x hidden_size rounded up to 64 when gated
  int64_t max_positions = 1024;
  PositionKind positions = PositionKind::learned;
  double rope_base = 10000;
  double rope_fraction = 1;
  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::gelu_tanh;
  bool bias = true;
  bool tied_embeddings = true;
  double init_std = 0.02;
  bool scaled_init = true;
  double hidden_dropout = 0, attention_dropout = 0, embedding_dropout = 0;
  int64_t vocab_multiple = 128;

  bool operator==(const ModelConfig&) const = default;

  /// Defaults of a form.
  static ModelConfig defaults(ModelForm form);
  /// Describes the table [model].
  void describe(ConfigVisitor& visitor);
  /// Fills what 0 stands for and refuses what cannot be built (InputError with names, values and what is
  /// allowed).
  void resolve();

  int64_t padded_vocabulary() const {
    return (vocab_size + vocab_multiple - 1) / vocab_multiple * vocab_multiple;
  }
  int64_t rotary_columns() const;
};

}  // namespace megalith
