#include "megalith/model/family.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "megalith/model/family_names.h"
#include "megalith/model/rope_fields.h"

namespace megalith {

namespace {

// A field of old or odd files, which is not written.
template <class T>
void only_if_there(ConfigFields& f, const char* key, T value) {
  if (f.find(key) != nullptr) f.fixed(key, value);
}

// Sizes under the names that most families use.
void sizes(ConfigFields& f, ModelConfig& c) {
  f.required("vocab_size", c.vocab_size);
  f.required("hidden_size", c.hidden_size);
  f.required("num_hidden_layers", c.num_layers);
  f.required("num_attention_heads", c.num_heads);
  f.required("intermediate_size", c.ffn_hidden_size);
  f.required("max_position_embeddings", c.max_positions);
}

void grouped_heads(ConfigFields& f, ModelConfig& c) {
  f.optional<int64_t>("num_key_value_heads", c.num_kv_heads, 0);
  f.optional<int64_t>("head_dim", c.head_size, 0);
}

void tied(ConfigFields& f, ModelConfig& c, bool absent) {
  f.optional("tie_word_embeddings", c.tied_embeddings, absent);
}

// The window of every layer, or of those in layer_types.
void window(ConfigFields& f, ModelConfig& c, int64_t absent = 0) {
  const bool given = !f.writing() && f.json().contains("sliding_window");
  f.nullable<int64_t>("sliding_window", c.window, 0);
  if (!f.writing() && !given) c.window = absent;
}

// What GPT-2 and GPT-J share.
void gpt_fields(ConfigFields& f, ModelConfig& c) {
  f.required("vocab_size", c.vocab_size);
  f.required("n_embd", c.hidden_size);
  f.required("n_layer", c.num_layers);
  f.required("n_head", c.num_heads);
  f.required("n_positions", c.max_positions);
  f.optional<int64_t>("n_inner", c.ffn_hidden_size, 0);
  f.required("layer_norm_epsilon", c.norm_epsilon);
  f.activation("activation_function", c.activation, false);
  f.ignore({"n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
            "summary_use_proj"});
}

void gpt2(ConfigFields& f, ModelConfig& c) {
  gpt_fields(f, c);
  tied(f, c, true);
  f.optional("embd_pdrop", c.embedding_dropout, 0.1);
  f.optional("attn_pdrop", c.attention_dropout, 0.1);
  f.optional("resid_pdrop", c.hidden_dropout, 0.1);
  f.fixed("scale_attn_weights", true);
  f.fixed("scale_attn_by_inverse_layer_idx", false);
  f.fixed("add_cross_attention", false);
  f.ignore({"reorder_and_upcast_attn"});
}

void gptj(ConfigFields& f, ModelConfig& c) {
  gpt_fields(f, c);
  int64_t rotary = c.rotary_columns();
  f.required("rotary_dim", rotary);
  if (!f.writing()) {
    check_input(c.num_heads > 0 && c.hidden_size % c.num_heads == 0, "{}: n_embd is not a multiple of n_head",
                f.where());
    // In floating point: the sizes are not checked yet, and their product may not fit.
    c.rope_fraction =
        static_cast<double>(rotary) * static_cast<double>(c.num_heads) / static_cast<double>(c.hidden_size);
  }
  tied(f, c, false);
  f.optional("embd_pdrop", c.embedding_dropout, 0.0);
  f.optional("attn_pdrop", c.attention_dropout, 0.0);
  f.optional("resid_pdrop", c.hidden_dropout, 0.0);
  f.ignore({"rotary", "scale_attn_weights", "tokenizer_class"});
}

void gpt_neox(ConfigFields& f, ModelConfig& c) {
  sizes(f, c);
  f.required("layer_norm_eps", c.norm_epsilon);
  f.activation("hidden_act", c.activation, false);
  bool parallel = c.branches == BranchOrder::parallel;
  f.optional("use_parallel_residual", parallel, true);
  c.branches = parallel ? BranchOrder::parallel : BranchOrder::sequential;
  rope_fields(
      f, c, {.fraction = 0.25, .partial = true, .base_key = "rotary_emb_base", .fraction_key = "rotary_pct"});
  f.bias("attention_bias", c, c.qkv_bias, true);
  c.attention_output_bias = c.qkv_bias;
  tied(f, c, false);
  f.optional("attention_dropout", c.attention_dropout, 0.0);
  f.optional("hidden_dropout", c.hidden_dropout, 0.0);
  f.ignore({"classifier_dropout", "rope_theta"});
}

void opt(ConfigFields& f, ModelConfig& c) {
  f.required("vocab_size", c.vocab_size);
  f.required("hidden_size", c.hidden_size);
  f.required("num_hidden_layers", c.num_layers);
  f.required("num_attention_heads", c.num_heads);
  f.required("ffn_dim", c.ffn_hidden_size);
  f.required("max_position_embeddings", c.max_positions);
  f.activation("activation_function", c.activation, false);
  bool before = c.norm_placement == NormPlacement::pre;
  f.optional("do_layer_norm_before", before, true);
  bool no_final = !c.final_norm && before;
  f.optional("_remove_final_layer_norm", no_final, false);
  c.norm_placement = before ? NormPlacement::pre : NormPlacement::post;
  c.final_norm = before && !no_final;
  int64_t projection = c.hidden_size;
  f.optional("word_embed_proj_dim", projection, c.hidden_size);
  check_input(
      projection == c.hidden_size,
      "{}: \"word_embed_proj_dim\" = {} differs from \"hidden_size\" = {}; only equal sizes are supported",
      f.where(), projection, c.hidden_size);
  f.bias("enable_bias", c, c.qkv_bias, true);
  c.attention_output_bias = c.ffn_bias = c.qkv_bias;
  f.fixed("layer_norm_elementwise_affine", true);
  tied(f, c, true);
  f.optional("dropout", c.hidden_dropout, 0.1);
  f.optional("attention_dropout", c.attention_dropout, 0.0);
  f.ignore({"layerdrop", "init_std", "activation_dropout", "prefix"});
}

void bloom(ConfigFields& f, ModelConfig& c) {
  f.required("vocab_size", c.vocab_size);
  f.required("hidden_size", c.hidden_size, "n_embed");
  f.required("n_layer", c.num_layers, "num_hidden_layers");
  f.required("n_head", c.num_heads, "num_attention_heads");
  f.optional<int64_t>("seq_length", c.max_positions, 2048);
  f.required("layer_norm_epsilon", c.norm_epsilon);
  f.fixed("apply_residual_connection_post_layernorm", false);
  int64_t inner = 4 * c.hidden_size;
  f.nullable<int64_t>("n_inner", inner, 4 * c.hidden_size);
  check_input(inner == 4 * c.hidden_size, "{}: \"n_inner\" = {}; only 4 x hidden_size is supported",
              f.where(), inner);
  if (!f.writing()) c.ffn_hidden_size = inner;
  tied(f, c, true);
  f.optional("hidden_dropout", c.hidden_dropout, 0.0);
  f.optional("attention_dropout", c.attention_dropout, 0.0);
  f.ignore({"slow_but_exact", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv",
            "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "unk_token_id",
            "num_attention_heads"});
}

// What LLaMA and its relatives share.
void llama_like(ConfigFields& f, ModelConfig& c, bool tied_when_absent) {
  sizes(f, c);
  grouped_heads(f, c);
  f.required("rms_norm_eps", c.norm_epsilon);
  tied(f, c, tied_when_absent);
  f.optional("attention_dropout", c.attention_dropout, 0.0);
}

void llama(ConfigFields& f, ModelConfig& c) {
  llama_like(f, c, false);
  f.activation("hidden_act", c.activation, true);
  rope_fields(f, c);
  f.bias("attention_bias", c, c.qkv_bias, false);
  c.attention_output_bias = c.qkv_bias;
  f.bias("mlp_bias", c, c.ffn_bias, false);
  only_if_there(f, "rope_interleaved", false);
  f.ignore({"is_llama_config", "transformers.js_config"});
}

void mistral(ConfigFields& f, ModelConfig& c) {
  llama_like(f, c, false);
  f.activation("hidden_act", c.activation, true);
  rope_fields(f, c);
  window(f, c);
}

// Layers from max_window_layers on have a window, if use_sliding_window says so.
void qwen_window(ConfigFields& f, ModelConfig& c) {
  bool used = c.window > 0;
  f.optional("use_sliding_window", used, false);
  window(f, c);
  f.optional("max_window_layers", c.window_first_layer, c.num_layers);
  if (!used) {
    c.window = c.window_first_layer = 0;
    f.ignore({"layer_types"});
    return;
  }
  layer_type_fields(f, c);
}

void qwen2(ConfigFields& f, ModelConfig& c) {
  llama_like(f, c, false);
  f.activation("hidden_act", c.activation, true);
  rope_fields(f, c);
  qwen_window(f, c);
}

void qwen3(ConfigFields& f, ModelConfig& c) {
  qwen2(f, c);
  if (!f.writing() && f.find("head_dim") == nullptr) c.head_size = 128;
  f.bias("attention_bias", c, c.qkv_bias, false);
  c.attention_output_bias = c.qkv_bias;
}

// Embeddings are multiplied by the root of their size.
void gemma_like(ConfigFields& f, ModelConfig& c) {
  llama_like(f, c, true);
  check_input(f.writing() || c.head_size > 0, "{}: \"head_dim\" is missing", f.where());
  // The newer name wins, as in transformers; older files have the exact form under the older name.
  if (!f.writing() && f.find("hidden_activation") == nullptr) {
    f.ignore({"hidden_act"});
    c.activation = Activation::geglu_tanh;
  } else {
    f.activation("hidden_activation", c.activation, true);
    f.ignore({"hidden_act"});
  }
  f.bias("attention_bias", c, c.qkv_bias, false);
  c.attention_output_bias = c.qkv_bias;
  if (!f.writing()) c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  only_if_there(f, "use_bidirectional_attention", false);
}

void gemma(ConfigFields& f, ModelConfig& c) {
  gemma_like(f, c);
  rope_fields(f, c);
}

// The scale of attention is one over the root of this, which is not always the head's size.
void query_scalar(ConfigFields& f, ModelConfig& c) {
  double scalar = std::pow(c.resolved_attention_scale(), -2);
  if (f.writing() && std::fabs(scalar - std::round(scalar)) < 1e-6 * scalar) {
    f.put("query_pre_attn_scalar", std::llround(scalar));  // as transformers wants it; GGUF keeps fp32
    return;
  }
  f.optional("query_pre_attn_scalar", scalar, 256.0);
  if (f.writing()) return;
  check_input(scalar > 0, "{}: \"query_pre_attn_scalar\" = {} must be positive", f.where(), scalar);
  c.attention_scale = scalar == static_cast<double>(c.head_size) ? 0 : 1 / std::sqrt(scalar);
}

void gemma2(ConfigFields& f, ModelConfig& c) {
  gemma_like(f, c);
  rope_fields(f, c);
  query_scalar(f, c);
  f.nullable("attn_logit_softcapping", c.attention_softcap, 0.0);
  f.nullable("final_logit_softcapping", c.logit_softcap, 0.0);
  window(f, c, 4096);
  layer_type_fields(f, c);
  f.ignore({"cache_implementation"});
}

void gemma3(ConfigFields& f, ModelConfig& c) {
  gemma_like(f, c);
  rope_fields_by_layer(f, c);
  query_scalar(f, c);
  f.nullable("attn_logit_softcapping", c.attention_softcap, 0.0);
  f.nullable("final_logit_softcapping", c.logit_softcap, 0.0);
  window(f, c, 4096);
  if (!f.writing()) {
    for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
      if (f.find(key) != nullptr) c.window_period = f.get<int64_t>(key);
    }
  }
  layer_type_fields(f, c);
  f.ignore({"cache_implementation"});
}

void phi3(ConfigFields& f, ModelConfig& c) {
  llama_like(f, c, false);
  f.activation("hidden_act", c.activation, true);
  rope_fields(f, c, {.partial = true});
  window(f, c);
  f.optional("embd_pdrop", c.embedding_dropout, 0.0);
  f.optional("resid_pdrop", c.hidden_dropout, 0.0);
  if (f.writing()) f.put("original_max_position_embeddings", c.rope_original_positions);
  only_if_there(f, "attention_bias", false);
  f.ignore({"auto_map"});
}

void starcoder2(ConfigFields& f, ModelConfig& c) {
  sizes(f, c);
  f.optional<int64_t>("num_key_value_heads", c.num_kv_heads, 2);
  f.required("norm_epsilon", c.norm_epsilon);
  f.activation("hidden_act", c.activation, false);
  rope_fields(f, c);
  window(f, c);
  f.bias("use_bias", c, c.qkv_bias, true);
  c.attention_output_bias = c.ffn_bias = c.qkv_bias;
  tied(f, c, true);
  f.optional("attention_dropout", c.attention_dropout, 0.0);
  f.optional("residual_dropout", c.hidden_dropout, 0.0);
  f.optional("embedding_dropout", c.embedding_dropout, 0.0);
  only_if_there(f, "mlp_type", std::string("default"));
  only_if_there(f, "norm_type", std::string("layer_norm"));
}

// Which head the class of the file has.
void encoder_head(ConfigFields& f, ModelConfig& c, std::string_view base, std::string_view masked) {
  if (f.writing()) {
    f.put("architectures", std::vector<std::string>{std::string(c.head == HeadKind::none ? base : masked)});
    return;
  }
  c.head = HeadKind::none;
  c.head_bias = false;
  if (const auto* classes = f.find("architectures"); classes != nullptr && classes->is_array()) {
    for (const auto& name : *classes) {
      if (!name.is_string()) continue;
      const std::string text = name.get<std::string>();
      // Models with a head are saved without the pooler.
      if (text.ends_with("ForMaskedLM") || text.ends_with("ForPreTraining")) {
        c.head = HeadKind::masked_language_model;
        c.head_bias = true;
      }
    }
  }
  // Models without a head are saved with a pooler or without one: the tensors tell.
  c.pooler = c.head == HeadKind::none;
}

void encoder(ConfigFields& f, ModelConfig& c) {
  f.required("layer_norm_eps", c.norm_epsilon);
  f.activation("hidden_act", c.activation, false);
  f.required("type_vocab_size", c.token_types);
  tied(f, c, true);
  f.optional("hidden_dropout_prob", c.hidden_dropout, 0.1);
  f.optional("attention_probs_dropout_prob", c.attention_dropout, 0.1);
  c.embedding_dropout = c.hidden_dropout;
  f.fixed("is_decoder", false);
  f.fixed("add_cross_attention", false);
  f.fixed("position_embedding_type", std::string("absolute"));
  f.ignore({"classifier_dropout", "gradient_checkpointing"});
}

void bert(ConfigFields& f, ModelConfig& c) {
  sizes(f, c);
  encoder(f, c);
  encoder_head(f, c, "BertModel", "BertForMaskedLM");
}

// Positions are counted from behind the padding token.
void roberta(ConfigFields& f, ModelConfig& c) {
  if (f.writing()) c.max_positions += 2;
  sizes(f, c);
  c.max_positions -= 2;
  f.fixed<int64_t>("pad_token_id", 1);
  encoder(f, c);
  encoder_head(f, c, "RobertaModel", "RobertaForMaskedLM");
}

constexpr std::array kFamilies = {
    Family{ModelForm::gpt2, "gpt2", "", "GPT2LMHeadModel", gpt2, kGpt2Names, "transformer."},
    Family{ModelForm::llama, "llama", "", "LlamaForCausalLM", llama, kLlamaNames, "model."},
    Family{ModelForm::gptj, "gptj", "", "GPTJForCausalLM", gptj, kGptjNames, "transformer.", true},
    Family{ModelForm::gpt_neox, "gpt_neox", "", "GPTNeoXForCausalLM", gpt_neox, kGptNeoxNames, "gpt_neox."},
    Family{ModelForm::opt, "opt", "", "OPTForCausalLM", opt, kOptNames, "model."},
    Family{ModelForm::bloom, "bloom", "", "BloomForCausalLM", bloom, kBloomNames, "transformer."},
    Family{ModelForm::mistral, "mistral", "", "MistralForCausalLM", mistral, kLlamaNames, "model."},
    Family{ModelForm::qwen2, "qwen2", "", "Qwen2ForCausalLM", qwen2, kLlamaNames, "model."},
    Family{ModelForm::qwen3, "qwen3", "", "Qwen3ForCausalLM", qwen3, kLlamaNames, "model."},
    Family{ModelForm::gemma, "gemma", "", "GemmaForCausalLM", gemma, kGemmaNames, "model."},
    Family{ModelForm::gemma2, "gemma2", "", "Gemma2ForCausalLM", gemma2, kGemma2Names, "model."},
    Family{ModelForm::gemma3, "gemma3_text", "", "Gemma3ForCausalLM", gemma3, kGemma2Names, "model."},
    Family{ModelForm::phi3, "phi3", "", "Phi3ForCausalLM", phi3, kPhi3Names, "model."},
    Family{ModelForm::starcoder2, "starcoder2", "", "Starcoder2ForCausalLM", starcoder2, kStarcoder2Names,
           "model."},
    Family{ModelForm::bert, "bert", "", "", bert, kBertNames, "bert."},
    Family{ModelForm::roberta, "roberta", "xlm-roberta", "", roberta, kRobertaNames, "roberta."},
};
static_assert(kFamilies.size() == kModelFormNames.size());

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family& family(ModelForm form) {
  return *std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& f) { return f.form == form; });
}

const Family* find_family(std::string_view model_type) {
  for (const Family& f : kFamilies) {
    if (f.model_type == model_type || (!model_type.empty() && f.other_model_type == model_type)) return &f;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const Family& f : kFamilies) {
    for (const std::string_view name : {f.model_type, f.other_model_type}) {
      if (!name.empty()) names += (names.empty() ? "" : ", ") + std::string(name);
    }
  }
  return names;
}

bool is_ignored_tensor(std::string_view name) {
  constexpr std::string_view kEndings[] = {".attn.bias",
                                           ".attn.masked_bias",
                                           ".attention.bias",
                                           ".attention.masked_bias",
                                           ".rotary_emb.inv_freq",
                                           "position_ids",
                                           ".attention.rotary_emb.inv_freq"};
  constexpr std::string_view kBeginnings[] = {"cls.seq_relationship.", "classifier.", "score.",
                                              "qa_outputs."};
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  const auto begins = [&](std::string_view beginning) { return name.starts_with(beginning); };
  return std::any_of(std::begin(kEndings), std::end(kEndings), ends) ||
         std::any_of(std::begin(kBeginnings), std::end(kBeginnings), begins) ||
         name == "cls.predictions.decoder.bias" || name == "lm_head.decoder.bias";
}

}  // namespace megalith
