"""Makes the golden files of the two model forms, with transformers as the authority.

    python tests/golden/make_model_goldens.py [--output tests/golden]

For each of gpt2_tiny and llama_tiny it writes

    NAME.safetensors   weights, tokens, logits, loss, gradients, ten AdamW steps (README.md lists the names)
    NAME/              the same initial weights as a Hugging Face directory, as save_pretrained makes it

Weights are rounded to float32 and everything else is computed from them in float64, so that the numbers
are exact for a float32 test. Then the whole is done once more in transformers' own float32, and the largest
differences are printed: what an ordinary float32 implementation may be expected to reach.
"""

import argparse
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

BATCH, TOKENS, STEPS = 2, 16, 10
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1

CONFIGS = {
    "gpt2_tiny": (GPT2LMHeadModel, GPT2Config(
        vocab_size=61, n_positions=32, n_embd=24, n_layer=3, n_head=3, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "llama_tiny": (LlamaForCausalLM, LlamaConfig(
        vocab_size=67, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
        attention_bias=False, mlp_bias=False)),
}


class RMSNorm64(torch.nn.Module):
    """transformers' RMSNorm goes through float32; this one stays in the type of its input."""

    def __init__(self, original):
        super().__init__()
        self.weight, self.epsilon = original.weight, original.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class Rotary64(torch.nn.Module):
    """The default rotary embedding, with its angles in the type of its input."""

    def __init__(self, config):
        super().__init__()
        self.base = config.rope_parameters["rope_theta"]
        self.size = config.hidden_size // config.num_attention_heads

    def forward(self, x, position_ids):
        frequencies = self.base ** (-torch.arange(0, self.size, 2, dtype=x.dtype) / self.size)
        angles = position_ids[..., None].to(x.dtype) * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def without_float32(model):
    """Replaces the parts of `model` that leave float64."""
    if isinstance(model, LlamaForCausalLM):
        model.model.rotary_emb = Rotary64(model.config)
        model.model.norm = RMSNorm64(model.model.norm)
        for layer in model.model.layers:
            layer.input_layernorm = RMSNorm64(layer.input_layernorm)
            layer.post_attention_layernorm = RMSNorm64(layer.post_attention_layernorm)
    return model


def initialise(model, generator):
    """Large enough that no gradient is tiny: matrices of deviation 0.2, norm weights around 1, random biases."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            is_norm_weight = p.dim() == 1 and name.endswith("weight")
            p.copy_((1 + 0.1 * noise if is_norm_weight else 0.2 * noise).float())


def snapshot(tensors):
    return {name: t.detach().float().clone() for name, t in tensors}


def run(model, tokens):
    """Forward, backward and ten AdamW steps; the float32 tensors of the golden file."""
    model.train()
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    parameters = dict(model.named_parameters())  # a tied tensor comes once
    decay = [p for p in parameters.values() if p.dim() >= 2]
    no_decay = [p for p in parameters.values() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": WEIGHT_DECAY},
                                   {"params": no_decay, "weight_decay": 0.0}], **ADAMW)

    result = {f"weights/{n}": t for n, t in snapshot(parameters.items()).items()}
    losses = []
    for step in range(STEPS):
        logits = model(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            result["logits"], result["loss"] = logits.detach().float(), torch.tensor(loss.item())
            gradients = snapshot((n, p.grad) for n, p in parameters.items())
            result.update({f"gradients/{n}": t for n, t in gradients.items()})
        optimizer.step()
    result["adamw_losses"] = torch.tensor(losses)
    result.update({f"final/{n}": t for n, t in snapshot(parameters.items()).items()})
    return result


def print_float32_differences(name, exact, rounded):
    """Largest |difference| over a kind of tensor, as a share of the largest magnitude in that tensor.

    The key third of GPT-2's c_attn.bias is left out: its true gradient is zero (a softmax does not see what is
    added to all its inputs), so Adam divides rounding noise by rounding noise there.
    """
    kinds = {}
    for key, want in exact.items():
        difference = (rounded[key] - want).abs()
        if key.endswith("c_attn.bias"):
            difference.chunk(3)[1].zero_()
        difference = difference.max().item()
        share = difference / max(want.abs().max().item(), 1e-30)
        kind = key.split("/")[0]
        kinds[kind] = max(kinds.get(kind, (0, "")), (share, key))
    for kind, (share, key) in kinds.items():
        if share > 0:
            print(f"  {name} in float32: {kind:13} {share:.1e}  {key}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed, (name, (model_class, config)) in enumerate(CONFIGS.items(), start=1):
        config._attn_implementation = "sdpa"  # the eager path of Llama takes its softmax in float32
        generator = torch.Generator().manual_seed(seed)
        model = model_class(config)
        initialise(model, generator)
        tokens = torch.randint(0, config.vocab_size, (BATCH, TOKENS + 1), generator=generator)

        model.save_pretrained(arguments.output / name)
        rounded = run(model_class.from_pretrained(arguments.output / name, dtype=torch.float32), tokens)
        exact = run(without_float32(model.double()), tokens)
        print_float32_differences(name, exact, rounded)
        print(f"  {name}: loss {exact['loss']:.7f} (ln V = {math.log(config.vocab_size):.4f}), "
              f"after {STEPS - 1} steps {exact['adamw_losses'][-1]:.7f}")

        contents = {"tokens": tokens.to(torch.int32)} | {k: t.contiguous() for k, t in exact.items()}
        metadata = {"config.json": (arguments.output / name / "config.json").read_text()}
        path = arguments.output / f"{name}.safetensors"
        save_file(contents, path, metadata=metadata)
        print(f"  {path}: {path.stat().st_size} bytes, {len(contents)} tensors")


if __name__ == "__main__":
    main()
