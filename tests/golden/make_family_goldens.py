"""Makes tiny random models of every family that Megalith reads, with transformers as the authority.

    python tests/golden/make_family_goldens.py [--output tests/golden/families] [NAME...]

For each variant it writes NAME/config.json and NAME/model.safetensors as save_pretrained makes them, and
NAME/expected.safetensors:

    tokens   I32 [2, T]      two texts
    output   F32 [2, T, V]   logits; hidden states [2, T, C] where the model has no head
    pooled   F32 [2, C]      of models with a pooler
    greedy   I32 [P + G]     of decoders: a prompt of P tokens and the G tokens that follow it
    prompt   I32 [1]         P

Weights are far from their usual small initial values, so that every piece of a model shows in its numbers.
Texts of rotary models are longer than the context they say they were trained for.
"""

import argparse
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

TOKENS, PROMPT, GENERATED = 24, 5, 12


def rope(kind, theta=10000.0, **options):
    return {"rope_type": kind, "rope_theta": theta, **options}


def llama_sizes(**options):
    return dict(vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=16, **options)


VARIANTS = {
    "gptj": ("GPTJ", dict(vocab_size=67, n_positions=32, n_embd=24, n_layer=2, n_head=3, rotary_dim=4, n_inner=40,
                          bos_token_id=0, eos_token_id=0)),
    "gpt_neox": ("GPTNeoX", dict(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                                 intermediate_size=40, max_position_embeddings=16,
                                 rope_parameters=rope("default", partial_rotary_factor=0.5))),
    "gpt_neox_sequential": ("GPTNeoX", dict(vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                            intermediate_size=24, max_position_embeddings=16, hidden_act="gelu_new",
                                            use_parallel_residual=False,
                                            rope_parameters=rope("default", partial_rotary_factor=0.25))),
    "opt": ("OPT", dict(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, ffn_dim=40,
                        max_position_embeddings=32, word_embed_proj_dim=24, dropout=0.0)),
    "opt_post_norm": ("OPT", dict(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                                  ffn_dim=40, max_position_embeddings=32, word_embed_proj_dim=24, dropout=0.0,
                                  do_layer_norm_before=False)),
    "bloom": ("Bloom", dict(vocab_size=67, hidden_size=24, n_layer=2, n_head=3)),
    "bloom_six_heads": ("Bloom", dict(vocab_size=67, hidden_size=24, n_layer=2, n_head=6)),
    "llama_biases": ("Llama", llama_sizes(attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                          rope_parameters=rope("linear", factor=2.5))),
    "llama_dynamic": ("Llama", llama_sizes(rope_parameters=rope("dynamic", factor=2.0))),
    "llama_yarn": ("Llama", llama_sizes(head_dim=8, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=8))),
    "llama_llama3": ("Llama", llama_sizes(head_dim=16, rope_parameters=rope(
        "llama3", theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64))),
    "mistral": ("Mistral", llama_sizes(head_dim=10, sliding_window=7)),
    "qwen2": ("Qwen2", llama_sizes(tie_word_embeddings=True)),
    "qwen2_window": ("Qwen2", llama_sizes(use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("Qwen3", llama_sizes(head_dim=10, rope_parameters=rope("default", 1e6))),
    "gemma": ("Gemma", {**llama_sizes(head_dim=10), "num_key_value_heads": 1}),
    "gemma2": ("Gemma2", llama_sizes(head_dim=8, sliding_window=6, query_pre_attn_scalar=11,
                                     attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
    "gemma3": ("Gemma3", {**llama_sizes(
        head_dim=8, sliding_window=6, query_pre_attn_scalar=8,
        rope_parameters={"sliding_attention": rope("default"), "full_attention": rope("linear", 1e6, factor=8.0)}),
        "num_hidden_layers": 7, "num_key_value_heads": 1}),
    "phi3": ("Phi3", llama_sizes(pad_token_id=0, sliding_window=9)),
    "phi3_longrope": ("Phi3", llama_sizes(
        pad_token_id=0, original_max_position_embeddings=12,
        rope_parameters=rope("longrope", short_factor=[1.0, 1.1, 1.3], long_factor=[1.0, 2.0, 3.5],
                             original_max_position_embeddings=12))),
    "starcoder2": ("Starcoder2", {**llama_sizes(sliding_window=8), "num_attention_heads": 3,
                                  "num_key_value_heads": 1}),
    "bert": ("Bert", dict(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                          intermediate_size=40, max_position_embeddings=32)),
    "bert_model": ("Bert", dict(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                                intermediate_size=40, max_position_embeddings=32)),
    "roberta": ("Roberta", dict(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                                intermediate_size=40, max_position_embeddings=34, type_vocab_size=1,
                                pad_token_id=1)),
}


def class_of(name, family):
    if name == "bert_model":
        return transformers.BertModel
    if family == "Gemma3":
        return transformers.Gemma3ForCausalLM
    suffix = {"Bert": "ForMaskedLM", "Roberta": "ForMaskedLM"}.get(family, "ForCausalLM")
    return getattr(transformers, family + suffix)


def config_of(family, options):
    name = {"Gemma3": "Gemma3TextConfig"}.get(family, family + "Config")
    return getattr(transformers, name)(attn_implementation="eager", **options)


def randomize(model, generator):
    """Matrices of columns' norm about 1, norms about 1, biases that show."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            scale = 0.5 if "embed" in name or "wte" in name else parameter.shape[-1] ** -0.5 * 1.2
            parameter.data.copy_(noise * scale)
        elif name.endswith("bias"):
            parameter.data.copy_(noise * 0.2)
        else:
            parameter.data.copy_((0.0 if "Gemma" in type(model).__name__ else 1.0) + noise * 0.2)


def make(name, output):
    family, options = VARIANTS[name]
    generator = torch.Generator().manual_seed(sum(name.encode()))
    config = config_of(family, options)
    model = class_of(name, family)(config).eval()
    randomize(model, generator)
    model.tie_weights()
    directory = output / name
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    vocabulary = config.vocab_size
    tokens = torch.randint(2, vocabulary, (2, TOKENS), generator=generator)
    expected = {"tokens": tokens.to(torch.int32)}
    smallest_margin = float("inf")
    with torch.no_grad():
        result = model(tokens)
        if name == "bert_model":
            expected["output"], expected["pooled"] = result.last_hidden_state, result.pooler_output
        else:
            expected["output"] = result.logits
        if family not in ("Bert", "Roberta"):
            ids = tokens[:1, :PROMPT].clone()
            for _ in range(GENERATED):
                logits = model(ids, use_cache=False).logits[0, -1]
                best = logits.topk(2)
                smallest_margin = min(smallest_margin, float(best.values[0] - best.values[1]))
                ids = torch.cat([ids, best.indices[:1].reshape(1, 1)], dim=1)
            expected["greedy"] = ids[0].to(torch.int32)
            expected["prompt"] = torch.tensor([PROMPT], dtype=torch.int32)
    save_file({key: value.contiguous() for key, value in expected.items()}, directory / "expected.safetensors")
    largest = float(expected["output"].abs().max())
    print(f"{name}: largest output {largest:.3f}, smallest greedy margin {smallest_margin:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "families")
    parser.add_argument("names", nargs="*", default=list(VARIANTS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names or VARIANTS:
        make(name, arguments.output)


if __name__ == "__main__":
    main()
