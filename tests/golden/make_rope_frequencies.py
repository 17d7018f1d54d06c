"""Prints the numbers of tests/model/rope_frequencies_test.cpp: every third inverse frequency, and the magnitude,
of each kind of rotary scaling, as transformers (5.24) computes them."""

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = {
    "linear": dict(factor=4.0),
    "dynamic": dict(factor=4.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=512),
    "yarn with all keys": dict(
        factor=4.0, original_max_position_embeddings=512, beta_fast=16.0, beta_slow=2.0, attention_factor=0.7),
    "llama3": dict(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=512),
    "longrope": dict(
        factor=4.0, short_factor=[1 + 0.1 * i for i in range(16)], long_factor=[1 + 0.5 * i for i in range(16)],
        original_max_position_embeddings=512),
}

for name, parameters in CASES.items():
    kind = name.split()[0]
    for length in (512, 2000):
        config = LlamaConfig(
            hidden_size=64, num_attention_heads=2, head_dim=32,
            max_position_embeddings=2048 if "original_max_position_embeddings" in parameters else 512,
            rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **parameters))
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
        print(name, length, f"{magnitude:.7g}", [f"{x:.7g}" for x in frequencies.double().tolist()[::3]])
