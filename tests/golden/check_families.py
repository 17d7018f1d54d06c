"""Loads in transformers what `megalith convert` writes of every model of tests/golden/families, and compares its outputs.

    python tests/golden/check_families.py --megalith build/release/bin/megalith

Each model goes to a Hugging Face directory, and, where llama.cpp has the architecture, to GGUF and from there to a Hugging Face
directory. transformers must load both with no tensor missing or left over, and compute the outputs that the original gave it.
Prints one line a model; exit status 1 when one fails. Needs torch and transformers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

TOLERANCE = 2e-5


def load(directory):
    name = json.loads((directory / "config.json").read_text())["architectures"][0]
    model, loading = getattr(transformers, name).from_pretrained(directory, dtype=torch.float32, output_loading_info=True,
                                                                 attn_implementation="eager", local_files_only=True)
    faults = {kind: sorted(map(str, names)) for kind, names in loading.items() if names}
    if faults:
        raise ValueError(f"transformers did not load every tensor: {faults}")
    return model.eval()


def error(directory, expected):
    with torch.no_grad():
        result = load(directory)(expected["tokens"].long())
    output = result.logits if hasattr(result, "logits") else result.last_hidden_state
    return float((output - expected["output"]).abs().max() / expected["output"].abs().max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", required=True)
    arguments = parser.parse_args()
    good = True
    transformers.logging.set_verbosity_error()
    for golden in sorted((Path(__file__).parent / "families").iterdir()):
        expected = load_file(golden / "expected.safetensors")
        is_encoder = "bert" in json.loads((golden / "config.json").read_text())["model_type"]
        with tempfile.TemporaryDirectory() as folder:

            def convert(source, target, *options):
                command = [arguments.megalith, "convert", "--from", source, "--to", Path(folder) / target, *options]
                done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
                return done.stderr.strip() if done.returncode else None

            figures = []
            refused = convert(golden, "hf")
            for way in ("hf", "gguf"):
                if way == "gguf":
                    refused = convert(golden, "model.gguf", "--format", "gguf") or convert(Path(folder) / "model.gguf", "gguf")
                if refused:
                    good &= way == "gguf"
                    figures.append("refused: " + refused.split(": ", 1)[-1][:60])
                    continue
                if way == "gguf" and is_encoder:
                    figures.append("kept without head and pooler")
                    continue
                difference = error(Path(folder) / way, expected)
                good &= difference < TOLERANCE
                figures.append(f"{difference:.1e}")
        print(f"{golden.name:<22} to Hugging Face {figures[0]:<10} through GGUF {figures[1]}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
