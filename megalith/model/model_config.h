// ModelConfig: every choice that makes a transformer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/config.h"
#include "megalith/nn/block_form.h"
#include "megalith/nn/rope_frequencies.h"
#include "megalith/ops/activation.h"
#include "megalith/ops/norm.h"

namespace megalith {

/// A family: a set of defaults, and the names and layouts of its files (model/family.h).
enum class ModelForm {
  gpt2,
  llama,
  gptj,
  gpt_neox,
  opt,
  bloom,
  mistral,
  qwen2,
  qwen3,
  gemma,
  gemma2,
  gemma3,
  phi3,
  starcoder2,
  bert,
  roberta
};
inline constexpr std::array<std::string_view, 16> kModelFormNames = {
    "gpt2",  "llama", "gptj",   "gpt_neox", "opt",  "bloom",      "mistral", "qwen2",
    "qwen3", "gemma", "gemma2", "gemma3",   "phi3", "starcoder2", "bert",    "roberta"};

enum class PositionKind { learned, rope, alibi, none };
inline constexpr std::array<std::string_view, 4> kPositionKindNames = {"learned", "rope", "alibi", "none"};

inline constexpr std::array<std::string_view, 6> kRopeScalingNames = {"none", "linear", "dynamic",
                                                                      "yarn", "llama3", "longrope"};

inline constexpr std::array<std::string_view, 3> kNormPlacementNames = {"pre", "post", "both"};

inline constexpr std::array<std::string_view, 3> kBranchOrderNames = {"sequential", "parallel",
                                                                      "parallel_shared_norm"};

/// What makes predictions of the last layer's stream.
enum class HeadKind { language_model, masked_language_model, none };
inline constexpr std::array<std::string_view, 3> kHeadKindNames = {"language_model", "masked_language_model",
                                                                   "none"};

/// Whether a group of layers has biases: as `bias` says, or whatever that says.
enum class BiasChoice { as_bias, yes, no };
inline constexpr std::array<std::string_view, 3> kBiasChoiceNames = {"as_bias", "yes", "no"};

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
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  int64_t rope_original_positions = 0;  // 0: max_positions
  double rope_low_frequency_factor = 1, rope_high_frequency_factor = 4;
  double rope_beta_fast = 32, rope_beta_slow = 1;
  double rope_attention_factor = 0;  // 0: by the rule of the scaling
  std::vector<double> rope_short_factors, rope_long_factors;
  double rope_window_base = 0;  // 0: windowed layers rotate as the others do

  bool causal = true;
  int64_t window = 0;  // 0: none
  int64_t window_period = 0;
  int64_t window_first_layer = 0;
  double attention_scale = 0;  // 0: 1 / sqrt(head_size)
  double attention_softcap = 0;
  bool qk_norm = false;

  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  NormPlacement norm_placement = NormPlacement::pre;
  BranchOrder branches = BranchOrder::sequential;
  bool embedding_norm = false;
  bool final_norm = true;
  double embedding_scale = 1;
  int64_t token_types = 0;

  Activation activation = Activation::gelu_tanh;
  bool bias = true;
  BiasChoice qkv_bias = BiasChoice::as_bias;
  BiasChoice attention_output_bias = BiasChoice::as_bias;
  BiasChoice ffn_bias = BiasChoice::as_bias;
  BiasChoice norm_bias = BiasChoice::as_bias;
  bool head_bias = false;

  HeadKind head = HeadKind::language_model;
  bool pooler = false;
  double logit_scale = 1;
  double logit_softcap = 0;
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
  /// What training on text, perplexity and generation need.
  bool predicts_next_token() const { return causal && head == HeadKind::language_model; }
  /// Whether a layer sees only the last `window` tokens.
  bool layer_has_window(int64_t layer) const {
    return window > 0 && layer >= window_first_layer &&
           (window_period == 0 || (layer + 1) % window_period != 0);
  }
  /// Scale of the scores of attention.
  double resolved_attention_scale() const;
  /// Whether a text that grows beyond so many tokens must go through the model anew, because the keys of all
  /// its tokens change then (LongRoPE has frequencies of its own for longer texts).
  bool keys_change_beyond(int64_t tokens) const {
    return positions == PositionKind::rope && rope_scaling == RopeScaling::longrope &&
           rope_short_factors != rope_long_factors && tokens == rope_original_positions;
  }
  /// The rotary embedding of layers with a window, or of the others.
  RopeOptions rope_options(bool windowed) const;
  bool has_bias(BiasChoice choice) const {
    return choice == BiasChoice::as_bias ? bias : choice == BiasChoice::yes;
  }
  bool has_norm_bias() const { return norm == NormKind::layer && has_bias(norm_bias); }
};

/// What makes the numbers of two resolved models differ, one line a key ("window = 7 and 0"); initialisation
/// and dropout do not count.
std::vector<std::string> differences(ModelConfig one, ModelConfig other);

}  // namespace megalith
