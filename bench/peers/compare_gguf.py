"""Compares a GGUF model in Megalith with transformers in fp32 on the same dequantised weights.

    pip install torch transformers accelerate gguf
    python bench/peers/compare_gguf.py --megalith build/release/bin/megalith --model runs/models/FILE.gguf
        [--text FILE] [--bytes 100000] [--tokens 48]

Prints, for three prompts, how many greedy tokens agree and the smallest margin between transformers' best two logits
where they part; and the negative log-likelihood of the first bytes of a text in windows of 1024 tokens, scored by both on
Megalith's token ids (transformers makes another tokenizer of some GGUF files than the model was trained with).
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

PROMPTS = ["The capital of France is", "def fibonacci(n):", "Once upon a time, in 1492,"]
WINDOW = 1024


def megalith(arguments, *words):
    return subprocess.run([arguments.megalith, *words], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--text", type=Path, default=Path(__file__).parents[2] / "docs" / "architecture.md")
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=48)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.model.parent, gguf_file=arguments.model.name,
                                                 dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        directory = str(Path(folder) / "model")
        megalith(arguments, "convert", "--from", arguments.model, "--to", directory)
        tokenizer = f"{directory}/tokenizer.json"

        def encode(text):
            file = Path(folder) / "text"
            file.write_bytes(text)
            words = ["tokenizer", "encode", "--tokenizer", tokenizer, "--input", file, "--add-special"]
            return [int(word) for word in megalith(arguments, *words).split()]

        for prompt in PROMPTS:
            line = megalith(arguments, "generate", "--model", arguments.model, "--prompt", prompt, "--max-tokens",
                            str(arguments.tokens), "--temperature", "0", "--ignore-end", "--json")
            ours = json.loads(line)["token_ids"]
            ids = encode(prompt.encode())
            agreed = 0
            for token in ours:
                logits = model(torch.tensor([ids])).logits[0, -1]
                best, second = logits.topk(2).values.tolist()
                if int(logits.argmax()) != token:
                    print(f"  parts after {agreed} tokens, where the margin is {best - second:.4f}")
                    break
                agreed += 1
                ids.append(token)
            print(f"{prompt!r}: {agreed} of {len(ours)} greedy tokens agree")

        text = arguments.text.read_bytes()[:arguments.bytes].decode(errors="ignore").encode()
        ids = encode(text)
        # What begins every text begins every window.
        begins = encode(b"a")[:-1] == ids[:1]
        theirs = 0.0
        scored = 0
        while scored < len(ids) - 1:
            end = min(scored + WINDOW, len(ids) - 1)
            begin = max(0, end - WINDOW)  # the last window is full too, and scores what is new in it
            part = torch.tensor([ids[begin:end + 1]])
            if begins:
                part[0, 0] = ids[0]
            logits = model(part[:, :-1]).logits[0, scored - begin:].double()
            theirs += torch.nn.functional.cross_entropy(logits, part[0, scored - begin + 1:], reduction="sum").item()
            scored = end
        file = Path(folder) / "text"
        file.write_bytes(text)
        result = json.loads(megalith(arguments, "eval", "perplexity", "--model", arguments.model, "--input", file,
                                     "--window", str(WINDOW), "--stride", str(WINDOW), "--json"))
        ours = result["results"][0]["negative_log_likelihood"]
        count = len(ids) - 1
        print(f"{count} tokens: nll {ours:.4f} here, {theirs:.4f} there; perplexity "
              f"{torch.tensor(ours / count).exp():.5f} and {torch.tensor(theirs / count).exp():.5f}, "
              f"relative difference {abs(ours - theirs) / theirs:.2e}")


if __name__ == "__main__":
    main()
