"""Times GPT-2 124M training steps in PyTorch on the CPU, at PyTorch's best settings.

    python bench/peers/pytorch_gpt2.py --precision bf16 --batch 4 --tokens 256 [--compile] [--steps 6]

One step is forward, backward and fused AdamW on random tokens: tied embeddings, scaled_dot_product_attention,
vocabulary 50257 padded to 50304, no dropout. bf16 is autocast over fp32 weights. The process starts itself again
with the malloc settings that keep large buffers mapped and on huge pages; --default-malloc measures PyTorch as it
comes.

Prints one JSON line: tokens_per_second (median step) and best, peak_resident_bytes of the process, step_seconds, and
the settings. --compile takes up to a minute before the first step, less when Inductor's cache has the kernels.
"""

import argparse
import json
import os
import statistics
import sys
import time

MALLOC_SETTINGS = ":".join([
    "glibc.malloc.hugetlb=1",
    "glibc.malloc.mmap_threshold=8589934592",
    "glibc.malloc.trim_threshold=8589934592",
    "glibc.malloc.top_pad=268435456",
])
VOCABULARY, PADDED_VOCABULARY = 50257, 50304
LAYERS, HIDDEN, HEADS = 12, 768, 12


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256, help="tokens a sequence")
    parser.add_argument("--steps", type=int, default=6, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model with its loss")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--default-malloc", action="store_true", help="leave malloc as it comes")
    return parser.parse_args()


def settle_environment(arguments):
    """malloc and OpenMP read their settings when a process starts, so start again with them."""
    wanted = {"OMP_NUM_THREADS": str(arguments.threads)}
    if not arguments.default_malloc:
        wanted["GLIBC_TUNABLES"] = MALLOC_SETTINGS
    unwanted = ["GLIBC_TUNABLES"] if arguments.default_malloc else []
    present = any(k in os.environ for k in unwanted)
    if not present and all(os.environ.get(k) == v for k, v in wanted.items()):
        return
    environment = {k: v for k, v in os.environ.items() if k not in unwanted} | wanted
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def build_model(torch, max_tokens):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
            self.qkv, self.projection = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
            self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
            attention = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(attention.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        """Returns the mean loss of `targets`."""

        def __init__(self):
            super().__init__()
            self.token_embedding = nn.Embedding(PADDED_VOCABULARY, HIDDEN)
            self.position_embedding = nn.Embedding(max_tokens, HIDDEN)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(HIDDEN)
            for p in self.parameters():
                if p.dim() >= 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = self.token_embedding(tokens) + self.position_embedding.weight[:tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.token_embedding.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return GPT2()


def peak_resident_bytes():
    """Of this process image alone: getrusage would also count what ran under this process id before exec."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def measure(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = build_model(torch, max(1024, arguments.tokens))
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if arguments.compile else model

    def step():
        data = torch.randint(0, VOCABULARY, (arguments.batch, arguments.tokens + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = run(data[:, :-1], data[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start

    for _ in range(arguments.warmup):
        step()
    seconds = [step() for _ in range(arguments.steps)]
    tokens = arguments.batch * arguments.tokens
    return {
        "tokens_per_second": round(tokens / statistics.median(seconds), 1),
        "best": round(tokens / min(seconds), 1),
        "peak_resident_bytes": peak_resident_bytes(),
        "step_seconds": [round(s, 4) for s in seconds],
        "torch": torch.__version__,
        "settings": {
            "precision": arguments.precision, "batch": arguments.batch, "tokens": arguments.tokens,
            "compile": arguments.compile, "threads": arguments.threads,
            "malloc": "default" if arguments.default_malloc else "huge pages",
        },
    }


if __name__ == "__main__":
    given = parse_arguments()
    settle_environment(given)
    print(json.dumps(measure(given)), flush=True)
