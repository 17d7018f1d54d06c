// Names of tensors in the files of each family (for model/family.cpp alone).
#pragma once

#include "megalith/model/stored_tensor.h"

namespace megalith {

inline constexpr auto kTransposed = NameRule::transposed;
inline constexpr auto kByHead = NameRule::by_head;
inline constexpr auto kFromTwo = NameRule::positions_from_two;
inline constexpr auto kFromOne = NameRule::from_one;

inline constexpr NameRule kGpt2Names[] = {
    {"embedding.token.*", "transformer.wte.*"},
    {"embedding.position.*", "transformer.wpe.*"},
    {"layers.#.attention_norm.*", "transformer.h.#.ln_1.*"},
    {"layers.#.attention.query_key_value.*", "transformer.h.#.attn.c_attn.*", kTransposed},
    {"layers.#.attention.output.*", "transformer.h.#.attn.c_proj.*", kTransposed},
    {"layers.#.feed_forward_norm.*", "transformer.h.#.ln_2.*"},
    {"layers.#.feed_forward.up.*", "transformer.h.#.mlp.c_fc.*", kTransposed},
    {"layers.#.feed_forward.down.*", "transformer.h.#.mlp.c_proj.*", kTransposed},
    {"final_norm.*", "transformer.ln_f.*"},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kGptjNames[] = {
    {"embedding.token.*", "transformer.wte.*"},
    {"layers.#.attention_norm.*", "transformer.h.#.ln_1.*"},
    {"layers.#.attention.query_key_value.*",
     "transformer.h.#.attn.q_proj.*|transformer.h.#.attn.k_proj.*|transformer.h.#.attn.v_proj.*"},
    {"layers.#.attention.output.*", "transformer.h.#.attn.out_proj.*"},
    {"layers.#.feed_forward.up.*", "transformer.h.#.mlp.fc_in.*"},
    {"layers.#.feed_forward.down.*", "transformer.h.#.mlp.fc_out.*"},
    {"final_norm.*", "transformer.ln_f.*"},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kGptNeoxNames[] = {
    {"embedding.token.*", "gpt_neox.embed_in.*"},
    {"layers.#.attention_norm.*", "gpt_neox.layers.#.input_layernorm.*"},
    {"layers.#.attention.query_key_value.*", "gpt_neox.layers.#.attention.query_key_value.*", kByHead},
    {"layers.#.attention.output.*", "gpt_neox.layers.#.attention.dense.*"},
    {"layers.#.feed_forward_norm.*", "gpt_neox.layers.#.post_attention_layernorm.*"},
    {"layers.#.feed_forward.up.*", "gpt_neox.layers.#.mlp.dense_h_to_4h.*"},
    {"layers.#.feed_forward.down.*", "gpt_neox.layers.#.mlp.dense_4h_to_h.*"},
    {"final_norm.*", "gpt_neox.final_layer_norm.*"},
    {"head.*", "embed_out.*"},
};

inline constexpr NameRule kOptNames[] = {
    {"embedding.token.*", "model.decoder.embed_tokens.*"},
    {"embedding.position.*", "model.decoder.embed_positions.*", kFromTwo},
    {"layers.#.attention_norm.*", "model.decoder.layers.#.self_attn_layer_norm.*"},
    {"layers.#.attention.query_key_value.*",
     "model.decoder.layers.#.self_attn.q_proj.*|model.decoder.layers.#.self_attn.k_proj.*|"
     "model.decoder.layers.#.self_attn.v_proj.*"},
    {"layers.#.attention.output.*", "model.decoder.layers.#.self_attn.out_proj.*"},
    {"layers.#.feed_forward_norm.*", "model.decoder.layers.#.final_layer_norm.*"},
    {"layers.#.feed_forward.up.*", "model.decoder.layers.#.fc1.*"},
    {"layers.#.feed_forward.down.*", "model.decoder.layers.#.fc2.*"},
    {"final_norm.*", "model.decoder.final_layer_norm.*"},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kBloomNames[] = {
    {"embedding.token.*", "transformer.word_embeddings.*"},
    {"embedding.norm.*", "transformer.word_embeddings_layernorm.*"},
    {"layers.#.attention_norm.*", "transformer.h.#.input_layernorm.*"},
    {"layers.#.attention.query_key_value.*", "transformer.h.#.self_attention.query_key_value.*", kByHead},
    {"layers.#.attention.output.*", "transformer.h.#.self_attention.dense.*"},
    {"layers.#.feed_forward_norm.*", "transformer.h.#.post_attention_layernorm.*"},
    {"layers.#.feed_forward.up.*", "transformer.h.#.mlp.dense_h_to_4h.*"},
    {"layers.#.feed_forward.down.*", "transformer.h.#.mlp.dense_4h_to_h.*"},
    {"final_norm.*", "transformer.ln_f.*"},
    {"head.*", "lm_head.*"},
};

// LLaMA, Mistral, Qwen.
inline constexpr NameRule kLlamaNames[] = {
    {"embedding.token.*", "model.embed_tokens.*"},
    {"layers.#.attention_norm.*", "model.layers.#.input_layernorm.*"},
    {"layers.#.attention.query_key_value.*",
     "model.layers.#.self_attn.q_proj.*|model.layers.#.self_attn.k_proj.*|model.layers.#.self_attn.v_proj.*"},
    {"layers.#.attention.query_norm.*", "model.layers.#.self_attn.q_norm.*"},
    {"layers.#.attention.key_norm.*", "model.layers.#.self_attn.k_norm.*"},
    {"layers.#.attention.output.*", "model.layers.#.self_attn.o_proj.*"},
    {"layers.#.feed_forward_norm.*", "model.layers.#.post_attention_layernorm.*"},
    {"layers.#.feed_forward.up.*", "model.layers.#.mlp.gate_proj.*|model.layers.#.mlp.up_proj.*"},
    {"layers.#.feed_forward.down.*", "model.layers.#.mlp.down_proj.*"},
    {"final_norm.*", "model.norm.*"},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kGemmaNames[] = {
    {"embedding.token.*", "model.embed_tokens.*"},
    {"layers.#.attention_norm.*", "model.layers.#.input_layernorm.*", kFromOne},
    {"layers.#.attention.query_key_value.*",
     "model.layers.#.self_attn.q_proj.*|model.layers.#.self_attn.k_proj.*|model.layers.#.self_attn.v_proj.*"},
    {"layers.#.attention.output.*", "model.layers.#.self_attn.o_proj.*"},
    {"layers.#.feed_forward_norm.*", "model.layers.#.post_attention_layernorm.*", kFromOne},
    {"layers.#.feed_forward.up.*", "model.layers.#.mlp.gate_proj.*|model.layers.#.mlp.up_proj.*"},
    {"layers.#.feed_forward.down.*", "model.layers.#.mlp.down_proj.*"},
    {"final_norm.*", "model.norm.*", kFromOne},
    {"head.*", "lm_head.*"},
};

// Gemma 2 and 3, which normalise branches at both ends.
inline constexpr NameRule kGemma2Names[] = {
    {"embedding.token.*", "model.embed_tokens.*"},
    {"layers.#.attention_norm.*", "model.layers.#.input_layernorm.*", kFromOne},
    {"layers.#.attention.query_key_value.*",
     "model.layers.#.self_attn.q_proj.*|model.layers.#.self_attn.k_proj.*|model.layers.#.self_attn.v_proj.*"},
    {"layers.#.attention.query_norm.*", "model.layers.#.self_attn.q_norm.*", kFromOne},
    {"layers.#.attention.key_norm.*", "model.layers.#.self_attn.k_norm.*", kFromOne},
    {"layers.#.attention.output.*", "model.layers.#.self_attn.o_proj.*"},
    {"layers.#.attention_post_norm.*", "model.layers.#.post_attention_layernorm.*", kFromOne},
    {"layers.#.feed_forward_norm.*", "model.layers.#.pre_feedforward_layernorm.*", kFromOne},
    {"layers.#.feed_forward.up.*", "model.layers.#.mlp.gate_proj.*|model.layers.#.mlp.up_proj.*"},
    {"layers.#.feed_forward.down.*", "model.layers.#.mlp.down_proj.*"},
    {"layers.#.feed_forward_post_norm.*", "model.layers.#.post_feedforward_layernorm.*", kFromOne},
    {"final_norm.*", "model.norm.*", kFromOne},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kPhi3Names[] = {
    {"embedding.token.*", "model.embed_tokens.*"},
    {"layers.#.attention_norm.*", "model.layers.#.input_layernorm.*"},
    {"layers.#.attention.query_key_value.*", "model.layers.#.self_attn.qkv_proj.*"},
    {"layers.#.attention.output.*", "model.layers.#.self_attn.o_proj.*"},
    {"layers.#.feed_forward_norm.*", "model.layers.#.post_attention_layernorm.*"},
    {"layers.#.feed_forward.up.*", "model.layers.#.mlp.gate_up_proj.*"},
    {"layers.#.feed_forward.down.*", "model.layers.#.mlp.down_proj.*"},
    {"final_norm.*", "model.norm.*"},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kStarcoder2Names[] = {
    {"embedding.token.*", "model.embed_tokens.*"},
    {"layers.#.attention_norm.*", "model.layers.#.input_layernorm.*"},
    {"layers.#.attention.query_key_value.*",
     "model.layers.#.self_attn.q_proj.*|model.layers.#.self_attn.k_proj.*|model.layers.#.self_attn.v_proj.*"},
    {"layers.#.attention.output.*", "model.layers.#.self_attn.o_proj.*"},
    {"layers.#.feed_forward_norm.*", "model.layers.#.post_attention_layernorm.*"},
    {"layers.#.feed_forward.up.*", "model.layers.#.mlp.c_fc.*"},
    {"layers.#.feed_forward.down.*", "model.layers.#.mlp.c_proj.*"},
    {"final_norm.*", "model.norm.*"},
    {"head.*", "lm_head.*"},
};

inline constexpr NameRule kBertNames[] = {
    {"embedding.token.*", "bert.embeddings.word_embeddings.*"},
    {"embedding.position.*", "bert.embeddings.position_embeddings.*"},
    {"embedding.token_type.*", "bert.embeddings.token_type_embeddings.*"},
    {"embedding.norm.*", "bert.embeddings.LayerNorm.*"},
    {"layers.#.attention.query_key_value.*",
     "bert.encoder.layer.#.attention.self.query.*|bert.encoder.layer.#.attention.self.key.*|"
     "bert.encoder.layer.#.attention.self.value.*"},
    {"layers.#.attention.output.*", "bert.encoder.layer.#.attention.output.dense.*"},
    {"layers.#.attention_norm.*", "bert.encoder.layer.#.attention.output.LayerNorm.*"},
    {"layers.#.feed_forward.up.*", "bert.encoder.layer.#.intermediate.dense.*"},
    {"layers.#.feed_forward.down.*", "bert.encoder.layer.#.output.dense.*"},
    {"layers.#.feed_forward_norm.*", "bert.encoder.layer.#.output.LayerNorm.*"},
    {"pooler.*", "bert.pooler.dense.*"},
    {"head.dense.*", "cls.predictions.transform.dense.*"},
    {"head.norm.*", "cls.predictions.transform.LayerNorm.*"},
    {"head.weight", "cls.predictions.decoder.weight"},
    {"head.bias", "cls.predictions.bias"},
};

inline constexpr NameRule kRobertaNames[] = {
    {"embedding.token.*", "roberta.embeddings.word_embeddings.*"},
    {"embedding.position.*", "roberta.embeddings.position_embeddings.*", kFromTwo},
    {"embedding.token_type.*", "roberta.embeddings.token_type_embeddings.*"},
    {"embedding.norm.*", "roberta.embeddings.LayerNorm.*"},
    {"layers.#.attention.query_key_value.*",
     "roberta.encoder.layer.#.attention.self.query.*|roberta.encoder.layer.#.attention.self.key.*|"
     "roberta.encoder.layer.#.attention.self.value.*"},
    {"layers.#.attention.output.*", "roberta.encoder.layer.#.attention.output.dense.*"},
    {"layers.#.attention_norm.*", "roberta.encoder.layer.#.attention.output.LayerNorm.*"},
    {"layers.#.feed_forward.up.*", "roberta.encoder.layer.#.intermediate.dense.*"},
    {"layers.#.feed_forward.down.*", "roberta.encoder.layer.#.output.dense.*"},
    {"layers.#.feed_forward_norm.*", "roberta.encoder.layer.#.output.LayerNorm.*"},
    {"pooler.*", "roberta.pooler.dense.*"},
    {"head.dense.*", "lm_head.dense.*"},
    {"head.norm.*", "lm_head.layer_norm.*"},
    {"head.weight", "lm_head.decoder.weight"},
    {"head.bias", "lm_head.bias"},
};

}  // namespace megalith
