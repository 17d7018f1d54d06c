"""Compares data-parallel training of two ranks in Megalith, PyTorch (DDP, FSDP) and DeepSpeed (ZeRO 2) on the CPU.

    pip install torch deepspeed
    python bench/peers/compare_parallel.py --megalith build/release/bin/megalith [--rounds 3] [--peers ddp fsdp deepspeed]

The work is that of `megalith bench parallel`: GPT-2 124M, bf16, 8 x 256 tokens a step, two ranks of one thread. A round runs
it (which measures all layouts of Megalith) and every peer once, each in processes of its own; every other round runs
backwards. Nothing else should run on the machine. Prints medians and ratios: ZeRO 0 against DDP, ZeRO 3 against FSDP, ZeRO 2
against DeepSpeed.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from processes import run

HERE = Path(__file__).resolve().parent
AGAINST = {"ddp": "ZeRO 0", "fsdp": "ZeRO 3", "deepspeed": "ZeRO 2"}


def measure(arguments, system):
    """{layout: tokens per second}."""
    if system != "megalith":
        command = [sys.executable, HERE / "pytorch_parallel.py", "--mode", system, "--steps", arguments.steps]
        return {system: json.loads(run(command).splitlines()[-1])["tokens_per_second"]}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "result.json"
        run([arguments.megalith, "bench", "parallel", "--rounds", 1, "--steps", arguments.steps, "--json", path])
        results = json.loads(path.read_text())["results"]
    return {result["layout"]: result["tokens_per_second"] for result in results if "tokens_per_second" in result}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--peers", nargs="+", choices=list(AGAINST), default=list(AGAINST))
    arguments = parser.parse_args()
    systems = ["megalith", *arguments.peers]
    rounds = []
    for index in range(arguments.rounds):
        figures = {}
        for system in systems if index % 2 == 0 else reversed(systems):
            figures |= measure(arguments, system)
        rounds.append(figures)
    median = {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
    print("| peer | tok/s | Megalith | tok/s | ratio |\n|---|---|---|---|---|")
    for peer in arguments.peers:
        layout = next(name for name in median if AGAINST[peer] in name)
        ratio = statistics.median(figures[layout] / figures[peer] for figures in rounds)
        print(f"| {peer} | {median[peer]:.0f} | {layout} | {median[layout]:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
