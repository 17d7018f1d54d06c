"""Compares GPT-2 124M training steps of Megalith and PyTorch in interleaved rounds, and prints a table of ratios.

    python bench/peers/compare_train.py --megalith build/release/bin/megalith
        [--precision fp32 bf16] [--tokens 256 1024] [--batch 4] [--rounds 3] [--default-malloc] [--json FILE]

A round runs, for every precision and length, `megalith bench train`, PyTorch eager and PyTorch compiled (and PyTorch
eager with malloc as it comes, with --default-malloc), each in a process of its own; every other round runs backwards.
Nothing else should run on the machine. A ratio is the median over rounds of Megalith's tokens/s over that of the
PyTorch mode with the better median, in the same round. Markdown goes to standard output, progress to standard error;
--json keeps every figure. At 1024 tokens a round takes about five minutes.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path

from processes import run

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "recipes" / "gpt2-124m.toml"
PYTORCH_MODES = {"eager": [], "compiled": ["--compile"], "default malloc": ["--default-malloc"]}


def megalith_command(arguments, precision, tokens, json_path):
    settings = {
        "train.precision": precision,
        "train.micro_batch": arguments.batch,
        "train.global_batch": arguments.batch,
        "data.sequence_length": tokens,
    }
    command = [arguments.megalith, "bench", "train", "--recipe", RECIPE, "--json", json_path]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return command


def pytorch_command(arguments, mode, precision, tokens):
    return [sys.executable, HERE / "pytorch_gpt2.py", "--precision", precision, "--batch", arguments.batch, "--tokens",
            tokens, "--steps", arguments.steps, "--threads", arguments.threads, *PYTORCH_MODES[mode]]


def measure(arguments, system, precision, tokens):
    """One process; {"tokens_per_second", "peak_resident_bytes", ...}."""
    if system != "megalith":
        return json.loads(run(pytorch_command(arguments, system, precision, tokens)).splitlines()[-1])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "result.json"
        run(megalith_command(arguments, precision, tokens, path))
        results = json.loads(path.read_text())["results"]
    wanted = {"precision": precision, "batch": arguments.batch, "tokens": tokens}
    fitting = [r for r in results if all(r[key] == value for key, value in wanted.items())]
    if len(fitting) != 1:
        sys.exit(f"compare_train: {len(fitting)} results of `megalith bench train` have {wanted}")
    return fitting[0]


def summarise(rounds, systems):
    """`rounds` maps a system to its measurements, a round each."""
    speed = {s: [m["tokens_per_second"] for m in rounds[s]] for s in systems}
    median = {s: statistics.median(speed[s]) for s in systems}
    peak = {s: statistics.median(m["peak_resident_bytes"] for m in rounds[s]) for s in systems}

    def ratio(peer):
        return statistics.median(a / b for a, b in zip(speed["megalith"], speed[peer]))

    best = max(("eager", "compiled"), key=median.get)
    return {
        "median_tokens_per_second": median, "median_peak_resident_bytes": peak, "best": best, "ratio": ratio(best),
        "ratio_default_malloc": ratio("default malloc") if "default malloc" in systems else None,
        "memory_ratio_compiled": peak["megalith"] / peak["compiled"],
    }


def table(summaries, systems, batch):
    heads = ["work", *(f"{s}, tok/s" for s in systems), "ratio to best"]
    heads += ["ratio to default malloc"] if "default malloc" in systems else []
    heads += [*(f"{s}, GB" for s in systems), "memory / compiled"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for (precision, tokens), s in summaries.items():
        cells = [f"{precision} B{batch} T{tokens}"]
        cells += [f"{s['median_tokens_per_second'][system]:.0f}" for system in systems]
        cells += [f"**{s['ratio']:.2f}** ({s['best']})"]
        cells += [f"{s['ratio_default_malloc']:.2f}"] if "default malloc" in systems else []
        cells += [f"{s['median_peak_resident_bytes'][system] / 1e9:.1f}" for system in systems]
        cells += [f"{s['memory_ratio_compiled']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", default="megalith", help="the program")
    parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[256, 1024])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a PyTorch process")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--default-malloc", action="store_true", help="also PyTorch eager as it comes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()

    systems = ["megalith", "eager", "compiled"] + ["default malloc"] * arguments.default_malloc
    works = list(itertools.product(arguments.precision, arguments.tokens))
    measured = {work: {s: [] for s in systems} for work in works}
    for number in range(arguments.rounds):
        order = list(itertools.product(works, systems))
        for work, system in order if number % 2 == 0 else reversed(order):
            result = measure(arguments, system, *work)
            measured[work][system].append(result)
            print(f"  round {number + 1}: {result['tokens_per_second']:.1f} tok/s", file=sys.stderr, flush=True)

    summaries = {work: summarise(measured[work], systems) for work in works}
    print(f"GPT-2 124M, training step, medians of {arguments.rounds} interleaved rounds, PyTorch "
          f"{measured[works[0]]['eager'][0]['torch']}, {arguments.threads} threads\n")
    print(table(summaries, systems, arguments.batch))
    if arguments.json:
        report = [{"precision": p, "tokens": t, "batch": arguments.batch, **summaries[p, t], "rounds": measured[p, t]}
                  for p, t in works]
        arguments.json.write_text(json.dumps({"results": report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
