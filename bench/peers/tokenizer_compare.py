#!/usr/bin/env python3
"""Compares `megalith tokenizer` with the libraries that tokenizers come from, on mixed text.

    .venv/bin/python bench/peers/tokenizer_compare.py --megalith build/release/bin/megalith [--size 20000000] [--llama-vocabularies DIR] FILE...

FILE is a tokenizer.json (compared with `tokenizers`), a SentencePiece model (`sentencepiece`), a .tiktoken file (`tiktoken`; with
--pattern) or a .gguf (the tokenizer.json that Megalith writes from it is compared with `tokenizers`). The text mixes English, code,
Chinese, Arabic, Hindi, joined emoji, 100,000 spaces and NUL bytes. Reported are equal ids, equal offsets in characters, and whether the
decoded text is the library's; then, for Megalith alone, whether text with invalid UTF-8 comes back, which no library takes.
--llama-vocabularies is a directory with llama.cpp's ggml-vocab-*.gguf, their .inp and .out. Ends with status 1 when ids differ.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

LINES = [
    "The quick brown fox didn't jump over 12,345 lazy dogs; it's 3.14 o'clock, isn't it?",
    "def f(x):\n    return {\"a\": [x ** 2, x // 3], 'b': \"%s\\n\" % x}  # comment",
    "\u5929\u5730\u7384\u9ec3\uff0c\u5b87\u5b99\u6d2a\u8352\u3002\u65e5\u6708\u76c8\u6603\u3001\u8fb0\u5bbf\u5217\u5f35\u300c\u5bd2\u4f86\u300d\uff01\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \ud55c\uad6d\uc5b4",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641 \u062d\u0627\u0644\u0643\u061f \u0661\u0662\u0663",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f \u0967\u0968\u0969",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f469\U0001f3fd\u200d\U0001f4bb\U0001f9d1\u200d\U0001f680 \U0001f1e9\U0001f1ea\u2764\ufe0f",
    "na\u00efve caf\u00e9 e\u0301te\u0301 \u00c5ngstr\u00f6m \ufb01n \uff21\uff22\uff23 \u00bd \u2122 \u201cquoted\u201d \u2014 \u00a0nbsp\u2009thin",
    "tabs\tand\ttrailing   \r\n\r\nline ends\n\n\n  indented",
]


def mixed_text(size):
    draw = random.Random(11)
    parts, total = [" " * 100_000, "nul \0 inside \0\0 ", "a" * 10_000], 0
    words = " ".join(LINES[:1] * 3).split()
    while total < size:
        line = draw.choice(LINES) if draw.random() < 0.6 else " ".join(draw.choice(words) for _ in range(draw.randint(3, 30)))
        parts.append(line + draw.choice(["\n", " ", "\n\n"]))
        total += len(parts[-1].encode())
    return "".join(parts)


def run(arguments, command, tokenizer, data, *more):
    process = subprocess.run([arguments.megalith, "tokenizer", command, "--tokenizer", str(tokenizer), *more], input=data, capture_output=True)
    if process.returncode:
        sys.exit(f"{tokenizer}: {process.stderr.decode()}")
    return process.stdout


def written_json(arguments, path, folder):
    """What `megalith tokenizer convert` makes of a tokenizer."""
    target = folder / "tokenizer.json"
    subprocess.run([arguments.megalith, "tokenizer", "convert", "--tokenizer", str(path), "--output", str(target)], check=True)
    return target


def compare_file(arguments, path, text, folder):
    extra = []
    data = text.encode()
    offsets = None
    if path.suffix in (".json", ".gguf"):
        import tokenizers
        library = tokenizers.Tokenizer.from_file(str(path if path.suffix == ".json" else written_json(arguments, path, folder)))
        library.no_truncation()
        library.no_padding()
        encoding = library.encode(text, add_special_tokens=False)
        ids, offsets, decoded = encoding.ids, encoding.offsets, library.decode(encoding.ids, skip_special_tokens=False)
    elif path.suffix == ".model":
        import sentencepiece
        library = sentencepiece.SentencePieceProcessor(model_file=str(path))
        ids = library.encode(text)
        decoded = library.decode(ids)
    else:
        import base64
        import tiktoken
        patterns = {"gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
                    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"}
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in path.read_bytes().splitlines() if line)}
        library = tiktoken.Encoding("file", pat_str=patterns[arguments.pattern], mergeable_ranks=ranks, special_tokens={})
        extra = ["--pattern", arguments.pattern]
        ids = library.encode_ordinary(text)
        decoded = library.decode(ids)
    # Plain ids of the whole, by one thread and by two, then tokens and offsets of its begin: JSON is large.
    mine = [int(i) for i in run(arguments, "encode", path, data, *extra, "--parse-special").split()]
    two = [int(i) for i in run(arguments, "encode", path, data, *extra, "--parse-special", "--workers", "2").split()]
    result = {"ids equal": mine == ids, "two threads equal": mine == two, "tokens": len(ids)}
    if mine != ids:
        at = next(i for i, (a, b) in enumerate(zip(mine + [-1], ids + [-1])) if a != b)
        result["first difference"] = [at, mine[at - 3:at + 5], ids[at - 3:at + 5]]
    if offsets is not None:
        found = json.loads(run(arguments, "encode", path, data, *extra, "--parse-special", "--json"))["character_offsets"]
        result["offsets equal"] = [tuple(pair) for pair in found] == [tuple(pair) for pair in offsets]
    back = run(arguments, "decode", path, " ".join(map(str, ids)).encode(), *extra)
    result["decoded equal"] = back.decode("utf-8", "replace") == decoded
    result["round trip"] = back == data
    bad = b"good \xff\xfe bad \xc3( \xe2\x82 \xf0\x9f\x92 half \xed\xa0\x80 end" * 50
    bad_ids = run(arguments, "encode", path, bad, *extra)
    result["invalid UTF-8 comes back"] = run(arguments, "decode", path, bad_ids, *extra) == bad
    return result


def compare_vocabularies(arguments, folder):
    good = True
    for expected in sorted(folder.glob("*.out")):
        path = expected.with_suffix("")
        texts = pathlib.Path(f"{path}.inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
        rows = expected.read_text().split("\n")
        probe = subprocess.run([arguments.megalith, "tokenizer", "encode", "--tokenizer", str(path)], input=b"a", capture_output=True)
        if probe.returncode:
            print(f"{path.name}: refused: {probe.stderr.decode().strip()[:120]}")
            continue
        equal = 0
        for text, row in zip(texts, rows):
            process = subprocess.run([arguments.megalith, "tokenizer", "encode", "--tokenizer", str(path)], input=text, capture_output=True)
            equal += process.returncode == 0 and process.stdout.split() == row.encode().split()
        count = min(len(texts), len(rows))
        print(f"{path.name}: {equal} of {count} texts as llama.cpp")
        good = good and equal == count
    return good


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--megalith", required=True)
    arguments.add_argument("--size", type=int, default=20_000_000)
    arguments.add_argument("--pattern", default="gpt2")
    arguments.add_argument("--llama-vocabularies", type=pathlib.Path)
    arguments.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = arguments.parse_args()
    good = True
    if arguments.llama_vocabularies:
        good = compare_vocabularies(arguments, arguments.llama_vocabularies)
    text = mixed_text(arguments.size)
    with tempfile.TemporaryDirectory() as folder:
        for path in arguments.files:
            result = compare_file(arguments, path, text, pathlib.Path(folder))
            print(path.name, json.dumps(result), flush=True)
            good = good and result["ids equal"] and result["two threads equal"]
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
