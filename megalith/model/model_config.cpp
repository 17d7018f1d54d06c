#include "megalith/model/model_config.h"

#include <cmath>

#include "megalith/base/error.h"

namespace megalith {

namespace {
constexpr int64_t kMaxDimension = int64_t{1} << 24;
}  // namespace

ModelConfig ModelConfig::defaults(ModelForm form) {
  ModelConfig config;
  config.form = form;
  if (form == ModelForm::llama) {
    config.positions = PositionKind::rope;
    config.norm = NormKind::rms;
    config.activation = Activation::swiglu;
    config.bias = false;
    config.tied_embeddings = false;
  }
  return config;
}

void ModelConfig::describe(ConfigVisitor& v) {
  v.table("model", "The architecture. `form` chooses the defaults of all other keys.");
  v.choice("form", form, kModelFormNames,
           "gpt2 (also MT-NLG): learned positions, LayerNorm, GELU, biases, tied output. llama: RoPE, "
           "RMSNorm, SwiGLU, "
           "no biases, untied output.");
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
  v.choice("positions", positions, kPositionKindNames, "Learned position table, or rotary embedding.");
  v.real("rope_base", rope_base, 1.0, 1e12, "", "Base of the rotary frequencies (theta).");
  v.real("rope_fraction", rope_fraction, 0.0, 1.0, "", "Share of each head's columns that rotate.");
  v.choice("norm", norm, kNormKindNames, "Normalisation before each sub-layer and before the head.");
  v.real("norm_epsilon", norm_epsilon, 1e-12, 1.0, "", "Added to the variance.");
  v.choice("activation", activation, kActivationNames, "Of the feed-forward network.");
  v.boolean("bias", bias, "Biases in linear layers and LayerNorm.");
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
  if (positions == PositionKind::rope) {
    check_input(rotary_columns() % 2 == 0 && rotary_columns() > 0,
                "rotary embedding turns pairs of columns: head_size {} x rope_fraction {} must give an even "
                "number of 2 "
                "or more",
                head_size, rope_fraction);
  }
}

int64_t ModelConfig::rotary_columns() const {
  if (positions != PositionKind::rope) return 0;
  return static_cast<int64_t>(std::llround(static_cast<double>(head_size) * rope_fraction));
}

}  // namespace megalith
