"""Checks a Hugging Face directory that `megalith convert` wrote against what Megalith computes with it.

    python tests/golden/check_export.py DIRECTORY --logits FILE.json
    python tests/golden/check_export.py DIRECTORY --text TEXT_FILE --ids IDS.json

--logits: {"tokens": [...], "logits": [[...], ...]}, one row of logits a token. transformers must load the
directory with no tensor missing or left over, and compute the same logits in float32. The difference of a row is
taken relative to the largest magnitude in that row; above --tolerance the check fails.

--text with --ids (a JSON list): tokenizer.json must load in `tokenizers`, encode the text to just these ids, and
decode them to the text.

Prints one line a check; exit status 0 when all hold, 1 when one fails. Needs torch, transformers, tokenizers.
"""

import argparse
import json
import sys
from pathlib import Path


def check_logits(directory, path, tolerance):
    import torch
    from transformers import AutoModelForCausalLM

    given = json.loads(path.read_text())
    model, loading = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True, local_files_only=True)
    faults = {kind: sorted(map(str, names)) for kind, names in loading.items() if names}
    if faults:
        print(f"logits: FAILED, transformers did not load every tensor: {faults}")
        return False
    with torch.no_grad():
        want = model.eval()(input_ids=torch.tensor([given["tokens"]])).logits[0]
    have = torch.tensor(given["logits"], dtype=torch.float32)
    if have.shape != want.shape:
        print(f"logits: FAILED, shape {list(have.shape)}, transformers has {list(want.shape)}")
        return False
    rows = (have - want).abs().amax(dim=1) / want.abs().amax(dim=1)
    worst = rows.argmax().item()
    good = bool(rows.max() <= tolerance)  # false for NaN
    print(f"logits: {'ok' if good else 'FAILED'}, {len(given['tokens'])} tokens, "
          f"max relative difference {rows[worst]:.2e} at position {worst} (tolerance {tolerance:.0e})")
    return good


def check_tokenizer(directory, text_path, ids_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = text_path.read_bytes().decode("utf-8")
    want, have = json.loads(ids_path.read_text()), tokenizer.encode(text, add_special_tokens=False).ids
    if have != want:
        pairs = zip(have, want)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(have), len(want)))
        print(f"tokenizer: FAILED, {len(want)} ids given, tokenizers has {len(have)}; they differ first at {at}: "
              f"given {want[at:at + 5]}, tokenizers {have[at:at + 5]}, after "
              f"{tokenizer.decode(have[max(0, at - 5):at], skip_special_tokens=False)!r}")
        return False
    if tokenizer.decode(have, skip_special_tokens=False) != text:
        print("tokenizer: FAILED, decoding the ids does not give the text back")
        return False
    print(f"tokenizer: ok, {len(have)} ids for {len(text)} characters")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--logits", type=Path, metavar="FILE.json")
    parser.add_argument("--tolerance", type=float, default=2e-5)
    parser.add_argument("--text", type=Path, metavar="FILE")
    parser.add_argument("--ids", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    if (arguments.text is None) != (arguments.ids is None):
        parser.error("--text and --ids go together")
    if arguments.logits is None and arguments.text is None:
        parser.error("nothing to check: give --logits, or --text and --ids")
    good = True
    if arguments.logits:
        good &= check_logits(arguments.directory, arguments.logits, arguments.tolerance)
    if arguments.text:
        good &= check_tokenizer(arguments.directory, arguments.text, arguments.ids)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
