#include "megalith/model/gguf_family.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "megalith/base/error.h"

namespace megalith {

namespace {

void sizes(GgufFields& f, ModelConfig& c) {
  f.required("block_count", c.num_layers);
  f.required("context_length", c.max_positions);
  f.required("embedding_length", c.hidden_size);
  f.required("feed_forward_length", c.ffn_hidden_size);
  f.required("attention.head_count", c.num_heads);
  f.ignore({"vocab_size"});
}

void layer_norm(GgufFields& f, ModelConfig& c) {
  f.required("attention.layer_norm_epsilon", c.norm_epsilon);
}

// Key/value heads, size of heads, RMSNorm and bases: what all relatives of LLaMA have.
void grouped_heads(GgufFields& f, ModelConfig& c) {
  const int64_t plain_size = c.num_heads > 0 ? c.hidden_size / c.num_heads : 0;
  f.optional("attention.head_count_kv", c.num_kv_heads, f.writing() ? -1 : c.num_heads);
  f.optional("attention.key_length", c.head_size, f.writing() ? -1 : plain_size);
  int64_t value_size = c.head_size;
  f.optional("attention.value_length", value_size, f.writing() ? -1 : c.head_size);
  check_input(value_size == c.head_size, "{}: keys and values of different sizes are not supported",
              f.where());
}

// llama3's scaling as a divisor for each frequency, which is what files hold.
std::vector<double> llama3_factors(const ModelConfig& c) {
  ModelConfig plain = c;
  plain.rope_scaling = RopeScaling::none;
  const std::vector<double> before = RopeFrequencies(plain.rope_options(false)).inverse_frequencies(1);
  const std::vector<double> after = RopeFrequencies(c.rope_options(false)).inverse_frequencies(1);
  std::vector<double> factors;
  for (size_t i = 0; i < before.size(); ++i) factors.push_back(before[i] / after[i]);
  return factors;
}

void rope(GgufFields& f, ModelConfig& c) {
  f.optional("rope.freq_base", c.rope_base, f.writing() ? -1.0 : 10000.0);
  int64_t columns = c.rotary_columns();
  f.optional("rope.dimension_count", columns, f.writing() ? -1 : c.head_size);
  if (!f.writing()) {
    check_input(c.head_size > 0 && columns <= c.head_size,
                "{}: \"rope.dimension_count\" = {} is more than the heads' {} columns", f.where(), columns,
                c.head_size);
    c.rope_fraction = static_cast<double>(columns) / static_cast<double>(c.head_size);
  }
  // Frequencies with a factor each, of every context or of short and long ones.
  std::vector<double> both, shorts, longs;
  if (f.writing() && c.rope_scaling == RopeScaling::longrope) {
    shorts = c.rope_short_factors;
    longs = c.rope_long_factors;
    if (shorts == longs) {
      both.swap(shorts);
      longs.clear();
    }
  } else if (f.writing() && c.rope_scaling == RopeScaling::llama3) {
    both = llama3_factors(c);
  }
  f.numbers("rope_freqs.weight", both);
  f.numbers("rope_factors_short.weight", shorts);
  f.numbers("rope_factors_long.weight", longs);
  std::string type = "none";
  if (f.writing() && (c.rope_scaling == RopeScaling::linear || c.rope_scaling == RopeScaling::yarn ||
                      c.rope_scaling == RopeScaling::dynamic)) {
    // llama.cpp has no dynamic scaling; reading the file back shows that.
    type = c.rope_scaling == RopeScaling::linear ? "linear"
           : c.rope_scaling == RopeScaling::yarn ? "yarn"
                                                 : "none";
  }
  f.optional("rope.scaling.type", type, "none");
  const bool has_factor = type == "linear" || type == "yarn";
  double factor = has_factor ? c.rope_factor : 1;
  f.optional("rope.scaling.factor", factor, 1.0);
  const bool has_original = type == "yarn" || !longs.empty();
  int64_t original = has_original ? c.rope_original_positions : 0;
  f.optional("rope.scaling.original_context_length", original, 0);
  double attention = longs.empty() ? 1 : RopeFrequencies(c.rope_options(false)).magnitude();
  f.optional("rope.scaling.attn_factor", attention, 1.0);
  double fast = type == "yarn" ? c.rope_beta_fast : 32, slow = type == "yarn" ? c.rope_beta_slow : 1;
  f.optional("rope.scaling.yarn_beta_fast", fast, 32.0);
  f.optional("rope.scaling.yarn_beta_slow", slow, 1.0);
  f.ignore({"rope.scaling.finetuned"});
  if (f.writing()) return;
  c.rope_original_positions = original;
  if (!both.empty()) {
    shorts = longs = both;
    c.rope_scaling = RopeScaling::longrope;
    c.rope_attention_factor = attention;
  } else if (!shorts.empty() || !longs.empty()) {
    c.rope_scaling = RopeScaling::longrope;
    c.rope_attention_factor = attention;
  } else if (type == "linear") {
    c.rope_scaling = RopeScaling::linear;
    c.rope_factor = factor;
  } else if (type == "yarn") {
    c.rope_scaling = RopeScaling::yarn;
    c.rope_factor = factor;
    c.rope_beta_fast = fast;
    c.rope_beta_slow = slow;
    if (attention != 1) c.rope_attention_factor = attention * (0.1 * std::log(factor) + 1);
  } else {
    check_input(type == "none" || type == "longrope", "{}: \"rope.scaling.type\" = {} is not supported",
                f.where(), type);
  }
  c.rope_short_factors = shorts;
  c.rope_long_factors = longs;
}

// llama.cpp knows windows of some architectures only; ours are written for all, and read again.
void window(GgufFields& f, ModelConfig& c, int64_t absent) {
  f.optional("attention.sliding_window", c.window, absent);
}

void gpt2(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  layer_norm(f, c);
}

void gptneox(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  layer_norm(f, c);
  if (!f.writing()) c.head_size = c.num_heads > 0 ? c.hidden_size / c.num_heads : 0;
  rope(f, c);
  bool parallel = c.branches == BranchOrder::parallel;
  f.optional("use_parallel_residual", parallel, f.writing() && !parallel);
  c.branches = parallel ? BranchOrder::parallel : BranchOrder::sequential;
}

void bloom(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  layer_norm(f, c);
  int64_t kv_heads = c.num_heads;
  f.optional("attention.head_count_kv", kv_heads, f.writing() ? -1 : c.num_heads);
  check_input(kv_heads == c.num_heads, "{}: BLOOM with grouped heads is not supported", f.where());
}

void llama(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  grouped_heads(f, c);
  f.required("attention.layer_norm_rms_epsilon", c.norm_epsilon);
  rope(f, c);
  window(f, c, 0);
}

void gemma(GgufFields& f, ModelConfig& c) {
  llama(f, c);
  if (!f.writing()) c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
}

// The largest models divide by the root of hidden_size / heads; files do not say it.
void gemma_scale(GgufFields& f, ModelConfig& c, int64_t layers_of_the_largest) {
  const double plain = 1 / std::sqrt(static_cast<double>(c.head_size));
  const double by_rule =
      c.num_layers == layers_of_the_largest && c.num_heads > 0
          ? 1 / std::sqrt(std::floor(static_cast<double>(c.hidden_size) / static_cast<double>(c.num_heads)))
          : plain;
  double scale = f.writing() ? c.resolved_attention_scale() : by_rule;
  f.optional("attention.scale", scale, by_rule);
  if (!f.writing()) c.attention_scale = scale == plain ? 0 : scale;
}

void gemma2(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  grouped_heads(f, c);
  f.required("attention.layer_norm_rms_epsilon", c.norm_epsilon);
  rope(f, c);
  window(f, c, f.writing() ? -1 : 4096);
  f.optional("attn_logit_softcapping", c.attention_softcap, f.writing() ? -1.0 : 50.0);
  f.optional("final_logit_softcapping", c.logit_softcap, f.writing() ? -1.0 : 30.0);
  gemma_scale(f, c, 46);
  if (!f.writing()) c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
}

void gemma3(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  grouped_heads(f, c);
  f.required("attention.layer_norm_rms_epsilon", c.norm_epsilon);
  rope(f, c);
  f.optional("rope.freq_base_swa", c.rope_window_base, 10000.0);
  window(f, c, 0);
  f.optional("final_logit_softcapping", c.logit_softcap, 0.0);
  gemma_scale(f, c, 62);
  if (!f.writing()) c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
}

void starcoder2(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  layer_norm(f, c);
  grouped_heads(f, c);
  rope(f, c);
  window(f, c, 0);
}

// Embeddings only: GGUF has neither the pooler nor the masked-LM head.
void bert(GgufFields& f, ModelConfig& c) {
  sizes(f, c);
  layer_norm(f, c);
  bool causal = c.causal;
  f.optional("attention.causal", causal, true);
  check_input(!causal, "{}: \"bert.attention.causal\" must be false", f.where());
  f.ignore({"pooling_type"});
  if (!f.writing()) {
    c.head = HeadKind::none;
    c.head_bias = false;
  }
}

constexpr NameRule kFusedNames[] = {
    {"embedding.token.*", "token_embd.*"},
    {"embedding.position.*", "position_embd.*"},
    {"embedding.norm.*", "token_embd_norm.*"},
    {"layers.#.attention_norm.*", "blk.#.attn_norm.*"},
    {"layers.#.attention.query_key_value.*", "blk.#.attn_qkv.*"},
    {"layers.#.attention.output.*", "blk.#.attn_output.*"},
    {"layers.#.feed_forward_norm.*", "blk.#.ffn_norm.*"},
    {"layers.#.feed_forward.up.*", "blk.#.ffn_up.*"},
    {"layers.#.feed_forward.down.*", "blk.#.ffn_down.*"},
    {"final_norm.*", "output_norm.*"},
    {"head.*", "output.*"},
};

constexpr NameRule kGatedNames[] = {
    {"embedding.token.*", "token_embd.*"},
    {"layers.#.attention_norm.*", "blk.#.attn_norm.*"},
    {"layers.#.attention.query_key_value.*", "blk.#.attn_q.*|blk.#.attn_k.*|blk.#.attn_v.*"},
    {"layers.#.attention.query_norm.*", "blk.#.attn_q_norm.*"},
    {"layers.#.attention.key_norm.*", "blk.#.attn_k_norm.*"},
    {"layers.#.attention.output.*", "blk.#.attn_output.*"},
    {"layers.#.attention_post_norm.*", "blk.#.post_attention_norm.*"},
    {"layers.#.feed_forward_norm.*", "blk.#.ffn_norm.*"},
    {"layers.#.feed_forward.up.*", "blk.#.ffn_gate.*|blk.#.ffn_up.*"},
    {"layers.#.feed_forward.down.*", "blk.#.ffn_down.*"},
    {"layers.#.feed_forward_post_norm.*", "blk.#.post_ffw_norm.*"},
    {"final_norm.*", "output_norm.*"},
    {"head.*", "output.*"},
};

constexpr NameRule kStarcoder2Names[] = {
    {"embedding.token.*", "token_embd.*"},
    {"layers.#.attention_norm.*", "blk.#.attn_norm.*"},
    {"layers.#.attention.query_key_value.*", "blk.#.attn_q.*|blk.#.attn_k.*|blk.#.attn_v.*"},
    {"layers.#.attention.output.*", "blk.#.attn_output.*"},
    {"layers.#.feed_forward_norm.*", "blk.#.ffn_norm.*"},
    {"layers.#.feed_forward.up.*", "blk.#.ffn_up.*"},
    {"layers.#.feed_forward.down.*", "blk.#.ffn_down.*"},
    {"final_norm.*", "output_norm.*"},
    {"head.*", "output.*"},
};

constexpr NameRule kBertNames[] = {
    {"embedding.token.*", "token_embd.*"},
    {"embedding.position.*", "position_embd.*"},
    {"embedding.token_type.*", "token_types.*"},
    {"embedding.norm.*", "token_embd_norm.*"},
    {"layers.#.attention.query_key_value.*", "blk.#.attn_q.*|blk.#.attn_k.*|blk.#.attn_v.*"},
    {"layers.#.attention.output.*", "blk.#.attn_output.*"},
    {"layers.#.attention_norm.*", "blk.#.attn_output_norm.*"},
    {"layers.#.feed_forward.up.*", "blk.#.ffn_up.*"},
    {"layers.#.feed_forward.down.*", "blk.#.ffn_down.*"},
    {"layers.#.feed_forward_norm.*", "blk.#.layer_output_norm.*"},
};

constexpr std::array kArchitectures = {
    GgufArchitecture{"gpt2", ModelForm::gpt2, gpt2, kFusedNames, GgufBiases::all},
    GgufArchitecture{"llama", ModelForm::llama, llama, kGatedNames, GgufBiases::optional, true},
    GgufArchitecture{"gptneox", ModelForm::gpt_neox, gptneox, kFusedNames, GgufBiases::all},
    GgufArchitecture{"bloom", ModelForm::bloom, bloom, kFusedNames, GgufBiases::all},
    GgufArchitecture{"qwen2", ModelForm::qwen2, llama, kGatedNames, GgufBiases::query_key_value},
    GgufArchitecture{"qwen3", ModelForm::qwen3, llama, kGatedNames, GgufBiases::none},
    GgufArchitecture{"gemma", ModelForm::gemma, gemma, kGatedNames, GgufBiases::none, false, true},
    GgufArchitecture{"gemma2", ModelForm::gemma2, gemma2, kGatedNames, GgufBiases::none, false, true},
    GgufArchitecture{"gemma3", ModelForm::gemma3, gemma3, kGatedNames, GgufBiases::none},
    GgufArchitecture{"phi3", ModelForm::phi3, llama, kFusedNames, GgufBiases::none},
    GgufArchitecture{"starcoder2", ModelForm::starcoder2, starcoder2, kStarcoder2Names, GgufBiases::all},
    GgufArchitecture{"bert", ModelForm::bert, bert, kBertNames, GgufBiases::all},
};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

const GgufArchitecture* gguf_architecture_of(ModelForm form) {
  if (form == ModelForm::mistral) form = ModelForm::llama;
  if (form == ModelForm::roberta) form = ModelForm::bert;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.form == form) return &architecture;
  }
  return nullptr;
}

std::span<const GgufArchitecture> gguf_architectures() {
  return kArchitectures;
}

std::string gguf_architecture_names() {
  std::string names;
  for (const GgufArchitecture& architecture : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return names;
}

}  // namespace megalith
