"""Compares the embeddings of an encoder in Megalith with transformers (mean pooling and unit length, as
sentence-transformers makes them of all-MiniLM-L6-v2).

    pip install torch transformers
    python bench/peers/compare_embeddings.py --megalith build/release/bin/megalith --model runs/models/all-MiniLM-L6-v2
        [--text FILE] [--lines N]

Texts are lines of a file and a few odd ones. Prints the largest difference of an element of a vector, the smallest cosine,
and the time of both.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModel

ODD = ["hello world", "Ünïcödé and 中文 and emoji 🦙👩‍👩‍👧", "a", "naïve café — “quotes” …", "x" * 300, "tab\tand  spaces",
       "One sentence. " * 200]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--text", type=Path, default=Path(__file__).parents[2] / "docs" / "architecture.md")
    parser.add_argument("--lines", type=int, default=200)
    arguments = parser.parse_args()
    lines = [line for line in arguments.text.read_text().splitlines() if line.strip()][:arguments.lines] + ODD

    began = time.perf_counter()
    done = subprocess.run([arguments.megalith, "embed", "--model", arguments.model], input="\n".join(lines) + "\n",
                          check=True, capture_output=True, text=True)
    here_seconds = time.perf_counter() - began
    ours = torch.tensor([json.loads(line)["embedding"] for line in done.stdout.splitlines()])

    model = AutoModel.from_pretrained(arguments.model, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.config.max_position_embeddings)
    began = time.perf_counter()
    theirs = []
    with torch.no_grad():
        for line in lines:
            hidden = model(torch.tensor([tokenizer.encode(line).ids])).last_hidden_state[0]
            theirs.append(torch.nn.functional.normalize(hidden.mean(0), dim=0))
    there_seconds = time.perf_counter() - began
    theirs = torch.stack(theirs)
    print(f"{len(lines)} texts: largest difference {float((ours - theirs).abs().max()):.2e}, smallest cosine "
          f"{float((ours * theirs).sum(1).min()):.8f}; {here_seconds:.2f} s here with start, {there_seconds:.2f} s there "
          f"one by one without")


if __name__ == "__main__":
    main()
