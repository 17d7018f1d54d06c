"""Trains the same small model on the same samples in Megalith and in PyTorch (fp32) and compares the loss curves.

    python bench/peers/compare_curve.py --megalith build/release/bin/megalith --dataset runs/quickstart/data/train_text_document
        --tokenizer runs/quickstart/data/tokenizer.json [--form gpt2|llama] [--steps 200]

The dataset is read in file order (data.shuffle = false), so that its .bin gives the samples. The initial weights come from a
run of one step with learning rate 0, exported as a Hugging Face directory. Exits with 1 when a loss differs by more than 0.5 %.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

BATCH, LENGTH, WARMUP = 16, 128, 20

RECIPE = """
[model]
form = "{form}"
num_layers = 4
hidden_size = 128
num_heads = 4
max_positions = {length}
[data]
tokenizer = "{tokenizer}"
train = "{dataset}"
split = ""
shuffle = false
[train]
steps = {steps}
micro_batch = 4
global_batch = {batch}
precision = "fp32"
[optimizer]
learning_rate = 1e-3
beta1 = 0.9
beta2 = 0.95
weight_decay = 0.1
clip_norm = 1.0
[schedule]
warmup_steps = {warmup}
min_learning_rate = 1e-4
[log]
every = 1
validate_every = 0
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", type=Path, required=True)
    parser.add_argument("--dataset", type=Path, required=True, help="prefix of a uint16 dataset")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--form", default="gpt2", choices=("gpt2", "llama"))
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        recipe = work / "curve.toml"
        recipe.write_text(
            RECIPE.format(
                form=arguments.form,
                length=LENGTH,
                tokenizer=arguments.tokenizer.resolve(),
                dataset=arguments.dataset.resolve(),
                steps=arguments.steps,
                batch=BATCH,
                warmup=WARMUP,
            )
        )

        def megalith(*command):
            subprocess.run([arguments.megalith, *map(str, command)], check=True, stderr=subprocess.DEVNULL)

        still = ["train.steps=1", "optimizer.learning_rate=0.0", "schedule.min_learning_rate=0.0", "schedule.warmup_steps=0"]
        megalith("train", recipe, "--output", work / "start", *(x for key in still for x in ("--set", key)))
        megalith("convert", "--from", work / "start", "--to", work / "model")
        megalith("train", recipe, "--output", work / "run")

        tokens = numpy.fromfile(arguments.dataset.with_name(arguments.dataset.name + ".bin"), dtype=numpy.uint16)
        count = arguments.steps * BATCH
        if tokens.size <= count * LENGTH:
            sys.exit(f"compare_curve: {tokens.size} tokens are too few for {count} samples of {LENGTH}")
        rows = [tokens[i * LENGTH : i * LENGTH + LENGTH + 1] for i in range(count)]
        numpy.save(work / "samples.npy", numpy.stack(rows).astype(numpy.int32))
        curve = Path(__file__).with_name("pytorch_curve.py")
        command = [sys.executable, curve, "--model", work / "model", "--samples", work / "samples.npy"]
        command += ["--sequence-length", LENGTH, "--steps", arguments.steps, "--batch", BATCH]
        command += ["--learning-rate", 1e-3, "--min-learning-rate", 1e-4, "--warmup-steps", WARMUP]
        command += ["--output", work / "losses.json", "--compare", work / "run" / "log.jsonl", "--tolerance", 0.005]
        return subprocess.run([str(part) for part in command]).returncode


if __name__ == "__main__":
    sys.exit(main())
