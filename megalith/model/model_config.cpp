#include "megalith/model/model_config.h"

#include <cmath>

#include "megalith/base/error.h"

namespace megalith {

namespace {
constexpr int64_t kMaxDimension = int64_t{1} << 24;
// Names and values of the fields.
class FieldList : public ConfigVisitor {
 public:
  std::vector<std::pair<std::string, std::string>> fields;

  void table(const char*, const char*) override {}
  void integer(const char* name, int64_t& value, int64_t, int64_t, const char*, const char*) override {
    fields.emplace_back(name, std::to_string(value));
  }
  void real(const char* name, double& value, double, double, const char*, const char*) override {
    // What files of fp32 numbers keep.
    fields.emplace_back(name, fmt::format("{:.6g}", value));
  }
  void boolean(const char* name, bool& value, const char*) override {
    fields.emplace_back(name, value ? "true" : "false");
  }
  void text(const char* name, std::string& value, const char*) override { fields.emplace_back(name, value); }
  void weighted_paths(const char*, std::vector<WeightedPath>&, const char*) override {}
  void reals(const char* name, std::vector<double>& value, const char*) override {
    std::string list;
    for (const double item : value) list += fmt::format("{}{:.6g}", list.empty() ? "" : ", ", item);
    fields.emplace_back(name, "[" + list + "]");
  }

 protected:
  void choose(const char* name, size_t& index, std::span<const std::string_view> names,
              const char*) override {
    fields.emplace_back(name, names[index]);
  }
};

// The same model with one value for everything that cannot be seen in its numbers.
ModelConfig canonical(ModelConfig c) {
  const ModelConfig none;
  const auto explicitly = [&](BiasChoice& choice, bool value) {
    choice = value ? BiasChoice::yes : BiasChoice::no;
  };
  explicitly(c.qkv_bias, c.has_bias(c.qkv_bias));
  explicitly(c.attention_output_bias, c.has_bias(c.attention_output_bias));
  explicitly(c.ffn_bias, c.has_bias(c.ffn_bias));
  explicitly(c.norm_bias, c.has_norm_bias());
  c.bias = true;
  c.form = none.form;
  c.init_std = none.init_std;
  c.scaled_init = none.scaled_init;
  c.vocab_multiple = none.vocab_multiple;
  c.hidden_dropout = c.attention_dropout = c.embedding_dropout = 0;
  c.attention_scale = c.resolved_attention_scale();
  const bool rotates = c.positions == PositionKind::rope;
  const RopeScaling scaling = rotates ? c.rope_scaling : RopeScaling::none;
  const bool stretches_magnitude = scaling == RopeScaling::yarn || scaling == RopeScaling::longrope;
  c.rope_attention_factor = stretches_magnitude ? RopeFrequencies(c.rope_options(false)).magnitude() : 1;
  // Factors of every context: what was the training's does not matter.
  if (scaling == RopeScaling::longrope && c.rope_short_factors == c.rope_long_factors) {
    c.rope_original_positions = 0;
  }
  if (!rotates) {
    c.rope_base = none.rope_base;
    c.rope_fraction = none.rope_fraction;
    c.rope_window_base = 0;
  }
  if (c.window == 0) {
    c.window_period = c.window_first_layer = 0;
    c.rope_window_base = 0;
  }
  c.rope_scaling = scaling;
  if (scaling == RopeScaling::none || scaling == RopeScaling::longrope) c.rope_factor = 1;
  if (scaling != RopeScaling::llama3) {
    c.rope_low_frequency_factor = none.rope_low_frequency_factor;
    c.rope_high_frequency_factor = none.rope_high_frequency_factor;
  }
  if (scaling != RopeScaling::yarn) {
    c.rope_beta_fast = none.rope_beta_fast;
    c.rope_beta_slow = none.rope_beta_slow;
  }
  if (scaling != RopeScaling::longrope) c.rope_short_factors = c.rope_long_factors = {};
  if (scaling == RopeScaling::none || scaling == RopeScaling::linear || scaling == RopeScaling::dynamic) {
    c.rope_original_positions = 0;
  }
  if (c.head == HeadKind::none) {
    c.logit_scale = 1;
    c.logit_softcap = 0;
    c.tied_embeddings = true;
  }
  return c;
}

}  // namespace

std::vector<std::string> differences(ModelConfig one, ModelConfig other) {
  FieldList ones, others;
  one = canonical(one);
  other = canonical(other);
  one.describe(ones);
  other.describe(others);
  std::vector<std::string> lines;
  for (size_t i = 0; i < ones.fields.size(); ++i) {
    const auto& [name, value] = ones.fields[i];
    if (value != others.fields[i].second) {
      lines.push_back(fmt::format("{} = {} and {}", name, value, others.fields[i].second));
    }
  }
  return lines;
}

ModelConfig ModelConfig::defaults(ModelForm form) {
  ModelConfig config;
  config.form = form;
  const auto llama_like = [&] {
    config.positions = PositionKind::rope;
    config.norm = NormKind::rms;
    config.activation = Activation::swiglu;
    config.bias = false;
    config.tied_embeddings = false;
  };
  const auto encoder = [&] {
    config.causal = false;
    config.activation = Activation::gelu_erf;
    config.norm_placement = NormPlacement::post;
    config.norm_epsilon = 1e-12;
    config.embedding_norm = true;
    config.final_norm = false;
    config.head = HeadKind::masked_language_model;
    config.head_bias = true;
    config.scaled_init = false;
  };
  switch (form) {
    case ModelForm::gpt2:
      break;
    case ModelForm::gptj:
      config.positions = PositionKind::rope;
      config.branches = BranchOrder::parallel_shared_norm;
      config.qkv_bias = config.attention_output_bias = BiasChoice::no;
      config.head_bias = true;
      config.tied_embeddings = false;
      break;
    case ModelForm::gpt_neox:
      config.positions = PositionKind::rope;
      config.rope_fraction = 0.25;
      config.branches = BranchOrder::parallel;
      config.activation = Activation::gelu_erf;
      config.tied_embeddings = false;
      break;
    case ModelForm::opt:
      config.activation = Activation::relu;
      break;
    case ModelForm::bloom:
      config.positions = PositionKind::alibi;
      config.embedding_norm = true;
      break;
    case ModelForm::llama:
    case ModelForm::mistral:
    case ModelForm::phi3:
      llama_like();
      break;
    case ModelForm::qwen2:
      llama_like();
      config.qkv_bias = BiasChoice::yes;
      break;
    case ModelForm::qwen3:
      llama_like();
      config.qk_norm = true;
      break;
    case ModelForm::gemma:
    case ModelForm::gemma2:
    case ModelForm::gemma3:
      llama_like();
      config.activation = Activation::geglu_tanh;
      config.norm_epsilon = 1e-6;
      config.tied_embeddings = true;
      if (form == ModelForm::gemma) break;
      config.norm_placement = NormPlacement::both;
      if (form == ModelForm::gemma2) {
        config.attention_softcap = 50;
        config.logit_softcap = 30;
        config.window = 4096;
        config.window_period = 2;
      } else {
        config.qk_norm = true;
        config.rope_base = 1e6;
        config.rope_window_base = 10000;
        config.window = 512;
        config.window_period = 6;
      }
      break;
    case ModelForm::starcoder2:
      config.positions = PositionKind::rope;
      break;
    case ModelForm::bert:
      encoder();
      config.token_types = 2;
      break;
    case ModelForm::roberta:
      encoder();
      config.token_types = 1;
      break;
  }
  return config;
}

void ModelConfig::describe(ConfigVisitor& v) {
  v.table("model", "The architecture. `form` chooses the defaults of all other keys.");
  v.choice("form", form, kModelFormNames,
           "gpt2 (also MT-NLG): learned positions, LayerNorm, GELU, biases, tied output. llama: RoPE, "
           "RMSNorm, SwiGLU, no biases, untied output. The others are the families of docs/models.md.");
  v.integer("vocab_size", vocab_size, 0, int64_t{1} << 31, "tokens", "Vocabulary; 0 takes the tokenizer's.");
  v.integer("num_layers", num_layers, 1, 100000, "", "Transformer blocks.");
  v.integer("hidden_size", hidden_size, 1, kMaxDimension, "", "Width of the residual stream.");
  v.integer("num_heads", num_heads, 1, kMaxDimension, "", "Query heads of attention.");
  v.integer("num_kv_heads", num_kv_heads, 0, kMaxDimension, "",
            "Key and value heads (grouped-query attention); 0 means num_heads.");
  v.integer("head_size", head_size, 0, kMaxDimension, "",
            "Width of a head; 0 means hidden_size / num_heads.");
  v.integer("ffn_hidden_size", ffn_hidden_size, 0, kMaxDimension, "",
            "Width of the feed-forward network; 0 means 4 x hidden_size, or 8/3 x hidden_size rounded up to "
            "a multiple "
            "of 64 for gated activations.");
  v.integer("max_positions", max_positions, 1, int64_t{1} << 31, "tokens", "Longest sequence of the model.");
  v.choice("positions", positions, kPositionKindNames,
           "Learned position table, rotary embedding, linear biases of the scores (ALiBi), or none.");
  v.real("rope_base", rope_base, 1.0, 1e12, "", "Base of the rotary frequencies (theta).");
  v.real("rope_fraction", rope_fraction, 0.0, 1.0, "", "Share of each head's columns that rotate.");
  v.choice("rope_scaling", rope_scaling, kRopeScalingNames,
           "How rotary frequencies are stretched to contexts longer than rope_original_positions.");
  v.real("rope_factor", rope_factor, 1e-3, 1e6, "", "By how much rope_scaling stretches.");
  v.integer("rope_original_positions", rope_original_positions, 0, int64_t{1} << 31, "tokens",
            "Context before stretching; 0 means max_positions.");
  v.real("rope_low_frequency_factor", rope_low_frequency_factor, 1e-6, 1e6, "",
         "llama3: waves longer than the original context over this are stretched fully.");
  v.real("rope_high_frequency_factor", rope_high_frequency_factor, 1e-6, 1e6, "",
         "llama3: waves shorter than the original context over this stay.");
  v.real("rope_beta_fast", rope_beta_fast, 1e-6, 1e6, "", "yarn: turns above which waves stay.");
  v.real("rope_beta_slow", rope_beta_slow, 1e-6, 1e6, "", "yarn: turns below which waves are stretched.");
  v.real("rope_attention_factor", rope_attention_factor, 0.0, 1e3, "",
         "yarn, longrope: multiplies the rotated queries and keys; 0 follows the rule of the scaling.");
  v.reals("rope_short_factors", rope_short_factors, "longrope: a divisor for each frequency, short texts.");
  v.reals("rope_long_factors", rope_long_factors, "longrope: a divisor for each frequency, long texts.");
  v.real("rope_window_base", rope_window_base, 0.0, 1e12, "",
         "Base of layers with a window, which are not stretched; 0 means that they rotate as the others do.");
  v.boolean("causal", causal, "Whether a token sees only the tokens before it; false makes an encoder.");
  v.integer("window", window, 0, int64_t{1} << 31, "tokens",
            "Tokens that a token of a windowed layer sees, itself included; 0 means no windows.");
  v.integer("window_period", window_period, 0, 100000, "layers",
            "Every layer whose number, from 1, is a multiple of this sees everything; 0 means none does.");
  v.integer("window_first_layer", window_first_layer, 0, 100000, "",
            "Layers before this one see everything.");
  v.real("attention_scale", attention_scale, 0.0, 1e6, "",
         "Multiplies the scores of attention; 0 means 1/sqrt(head_size).");
  v.real("attention_softcap", attention_softcap, 0.0, 1e6, "",
         "Scores become cap x tanh(score / cap); 0 leaves them.");
  v.boolean("qk_norm", qk_norm, "RMSNorm of each head of query and key, before they rotate.");
  v.choice("norm", norm, kNormKindNames, "Normalisation of the branches and before the head.");
  v.real("norm_epsilon", norm_epsilon, 1e-12, 1.0, "", "Added to the variance.");
  v.choice(
      "norm_placement", norm_placement, kNormPlacementNames,
      "Before each branch, behind the sum of branch and stream, or before and at the end of the branch.");
  v.choice("branches", branches, kBranchOrderNames,
           "Attention then feed-forward; or both from one stream, with a norm each or a shared one.");
  v.boolean("embedding_norm", embedding_norm, "Normalises what leaves the embedding.");
  v.boolean("final_norm", final_norm, "Normalises what leaves the last layer.");
  v.real("embedding_scale", embedding_scale, 1e-6, 1e6, "", "Multiplies the token embedding.");
  v.integer("token_types", token_types, 0, 65536, "", "Rows of a table of token types; 0 means no table.");
  v.choice("activation", activation, kActivationNames, "Of the feed-forward network.");
  v.boolean("bias", bias, "Biases in linear layers and LayerNorm, where the next four keys say as_bias.");
  v.choice("qkv_bias", qkv_bias, kBiasChoiceNames, "Biases of queries, keys and values.");
  v.choice("attention_output_bias", attention_output_bias, kBiasChoiceNames,
           "Bias of the projection that ends attention.");
  v.choice("ffn_bias", ffn_bias, kBiasChoiceNames, "Biases of the feed-forward network.");
  v.choice("norm_bias", norm_bias, kBiasChoiceNames, "Biases of LayerNorm.");
  v.boolean("head_bias", head_bias, "Bias of the output projection.");
  v.choice("head", head, kHeadKindNames,
           "Predicts the next token; predicts masked tokens (a dense layer and a norm before the output "
           "projection); or none, for embeddings.");
  v.boolean("pooler", pooler, "A dense layer with tanh over the first token.");
  v.real("logit_scale", logit_scale, 1e-6, 1e6, "", "Multiplies the logits.");
  v.real("logit_softcap", logit_softcap, 0.0, 1e6, "",
         "Logits become cap x tanh(logit / cap); 0 leaves them.");
  v.boolean("tied_embeddings", tied_embeddings, "The output projection is the token embedding.");
  v.real("init_std", init_std, 0.0, 10.0, "", "Standard deviation of initial weights.");
  v.boolean(
      "scaled_init", scaled_init,
      "Projections that end a residual branch start with init_std / sqrt(2 num_layers), as in Megatron-LM.");
  v.real("hidden_dropout", hidden_dropout, 0.0, 0.99, "", "Dropout at the end of each residual branch.");
  v.real("attention_dropout", attention_dropout, 0.0, 0.99, "", "Dropout of attention probabilities.");
  v.real("embedding_dropout", embedding_dropout, 0.0, 0.99, "", "Dropout of the embedding.");
  v.integer("vocab_multiple", vocab_multiple, 1, 65536, "rows",
            "The vocabulary tables are padded to a multiple of this; the padding never takes part and is "
            "never stored.");
}

void ModelConfig::resolve() {
  if (num_kv_heads == 0) num_kv_heads = num_heads;
  if (head_size == 0) {
    check_input(
        hidden_size % num_heads == 0,
        "model.hidden_size = {} is not a multiple of model.num_heads = {}; change one or set model.head_size",
        hidden_size, num_heads);
    head_size = hidden_size / num_heads;
  }
  if (ffn_hidden_size == 0) {
    ffn_hidden_size = is_gated(activation) ? (hidden_size * 8 / 3 + 63) / 64 * 64 : 4 * hidden_size;
  }
  check_input(vocab_size > 0, "model.vocab_size is 0 and there is no tokenizer to take it from");
  check_input(num_heads % num_kv_heads == 0,
              "model.num_heads = {} is not a multiple of model.num_kv_heads = {}", num_heads, num_kv_heads);
  if (rope_original_positions == 0) rope_original_positions = max_positions;
  if (positions == PositionKind::rope) {
    check_input(rotary_columns() % 2 == 0 && rotary_columns() > 0,
                "rotary embedding turns pairs of columns: head_size {} x rope_fraction {} must give an even "
                "number of 2 or more",
                head_size, rope_fraction);
    if (rope_scaling == RopeScaling::longrope) {
      const auto pairs = static_cast<size_t>(rotary_columns() / 2);
      check_input(
          rope_short_factors.size() == pairs && rope_long_factors.size() == pairs,
          "model.rope_short_factors and rope_long_factors must have {} numbers, one for each frequency; "
          "they have {} and {}",
          pairs, rope_short_factors.size(), rope_long_factors.size());
    }
  }
  check_input(branches == BranchOrder::sequential || norm_placement == NormPlacement::pre,
              "model.branches = {} needs model.norm_placement = pre",
              kBranchOrderNames[static_cast<size_t>(branches)]);
  check_input(head != HeadKind::none || !head_bias, "model.head_bias needs a head");
}

double ModelConfig::resolved_attention_scale() const {
  return attention_scale > 0 ? attention_scale : 1.0 / std::sqrt(static_cast<double>(head_size));
}

int64_t ModelConfig::rotary_columns() const {
  if (positions != PositionKind::rope) return 0;
  return static_cast<int64_t>(static_cast<double>(head_size) * rope_fraction + 1e-9);
}

RopeOptions ModelConfig::rope_options(bool windowed) const {
  RopeOptions options;
  options.columns = rotary_columns();
  options.base = rope_base;
  options.original_positions = rope_original_positions;
  if (windowed && rope_window_base > 0) {
    options.base = rope_window_base;
    return options;
  }
  options.scaling = rope_scaling;
  options.factor = rope_factor;
  options.low_frequency_factor = rope_low_frequency_factor;
  options.high_frequency_factor = rope_high_frequency_factor;
  options.beta_fast = rope_beta_fast;
  options.beta_slow = rope_beta_slow;
  options.attention_factor = rope_attention_factor;
  options.short_factors = rope_short_factors;
  options.long_factors = rope_long_factors;
  return options;
}

}  // namespace megalith
