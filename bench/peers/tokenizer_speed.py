#!/usr/bin/env python3
"""Compares `megalith tokenizer` with tiktoken and Hugging Face tokenizers: encoding on one thread and on two, and training.

    .venv/bin/python bench/peers/tokenizer_speed.py --megalith build/bin/megalith --text FILE [--vocab-size 32000]

With --others, models of the other kinds (Unigram, WordPiece, SentencePiece-style BPE with byte fallback), trained with `tokenizers` on
the first 2 MB, are compared with it instead.

All three encode the same text with the same vocabulary (trained by Megalith) and must give the same ids; runs are interleaved and
medians compared. Training is measured in a process of its own each, with its peak memory; with --tokenizer, one that Megalith trained
before, it is left out. Needs tiktoken and tokenizers.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TRAIN_PEER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=int(sys.argv[2]), special_tokens=["<|endoftext|>"], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train([sys.argv[1]], trainer)
tokenizer.save(sys.argv[3])
"""


def byte_of_character():
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {chr(b): b for b in printable}
    extra = 256
    for b in range(256):
        if b not in printable:
            table[chr(extra)] = b
            extra += 1
    return table


def run_measured(command):
    """Seconds and peak resident bytes of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed: {message}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024, message


def chunks_of(text, size):
    """The text in parts of about `size` characters, cut where no word is cut."""
    parts, begin = [], 0
    while begin < len(text):
        cut = re.compile(r"(?<=[a-z])(?= [a-z])").search(text, begin + size)
        end = cut.start() if cut else len(text)
        parts.append(text[begin:end])
        begin = end
    return parts


def train_others(text, folder):
    """Tokenizers of the other kinds, by name."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    lines = text[:2_000_000].splitlines()
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    unigram.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=8000, unk_token="<unk>", special_tokens=["<unk>"],
                                                               show_progress=False))
    word_piece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    word_piece.normalizer = normalizers.BertNormalizer()
    word_piece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    word_piece.decoder = decoders.WordPiece()
    word_piece.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=16000, special_tokens=["[UNK]"], show_progress=False))
    bpe = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace()
    bpe.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16000, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)],
                                                       show_progress=False))
    # As LLaMA 2 and Gemma have it: the whole text is one word.
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    bpe.pre_tokenizer = None
    made = {"Unigram": unigram, "WordPiece": word_piece, "SentencePiece-style BPE": bpe}
    for name, tokenizer in made.items():
        tokenizer.save(str(folder / f"{name}.json"))
    return {name: folder / f"{name}.json" for name in made}


def encode_timed(arguments, tokenizer, workers):
    """MB/s of the encoder alone, and what the command prints: the ids."""
    command = [arguments.megalith, "tokenizer", "encode", "--tokenizer", str(tokenizer), "--input", arguments.text, "--stats",
               "--workers", str(workers)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(re.search(r"([\d.]+) MB/s", result.stderr).group(1)), result.stdout


def compare_others(arguments, folder):
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers
    text = pathlib.Path(arguments.text).read_text(encoding="utf-8")
    size = len(text.encode())
    for name, path in train_others(text, folder).items():
        library = tokenizers.Tokenizer.from_file(str(path))
        some = text[: len(text) // 20]
        speeds = {"one": [], "two": [], "library": []}
        for _ in range(arguments.runs):
            for key, workers in (("one", 1), ("two", 2)):
                speeds[key].append(encode_timed(arguments, path, workers)[0])
            start = time.perf_counter()
            ids = library.encode(some, add_special_tokens=False).ids
            speeds["library"].append(len(some.encode()) / 1e6 / (time.perf_counter() - start))
        part = folder / "part.txt"
        part.write_text(some, encoding="utf-8")
        mine = subprocess.run([arguments.megalith, "tokenizer", "encode", "--tokenizer", str(path), "--input", str(part)], capture_output=True,
                              text=True, check=True).stdout.split()
        one, two, theirs = (statistics.median(values) for values in speeds.values())
        print(f"{name}: ids equal {[int(i) for i in mine] == ids}; MB/s: megalith {one:.1f}, two threads {two:.1f} ({two / one:.2f} times), "
              f"tokenizers {theirs:.2f}; megalith / tokenizers {one / theirs:.1f} (bar 4), {size / 1e6:.0f} MB")


def compare_training(arguments, mine, theirs):
    train_mine = [arguments.megalith, "tokenizer", "train", "--input", arguments.text, "--vocab-size",
                  str(arguments.vocab_size), "--output", str(mine)]
    train_theirs = [sys.executable, "-c", TRAIN_PEER, arguments.text, str(arguments.vocab_size), str(theirs)]
    mine_runs, their_runs = [], []
    for _ in range(arguments.runs):
        mine_runs.append(run_measured(train_mine)[:2])
        their_runs.append(run_measured(train_theirs)[:2])
    seconds = [statistics.median(run[0] for run in runs) for runs in (mine_runs, their_runs)]
    memory = [statistics.median(run[1] for run in runs) for runs in (mine_runs, their_runs)]
    print(f"train: megalith {seconds[0]:.2f} s, {memory[0] / 1e6:.0f} MB; tokenizers {seconds[1]:.2f} s, "
          f"{memory[1] / 1e6:.0f} MB; {seconds[1] / seconds[0]:.1f} times as fast, {memory[0] / memory[1]:.2f} of the memory")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--megalith", required=True)
    arguments.add_argument("--text", required=True)
    arguments.add_argument("--vocab-size", type=int, default=32000)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--tokenizer", type=pathlib.Path)
    arguments.add_argument("--others", action="store_true")
    arguments = arguments.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(os.cpu_count())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tokenizer_speed_"))
    if arguments.others:
        return compare_others(arguments, folder)
    mine, theirs = folder / "megalith.json", folder / "tokenizers.json"

    if arguments.tokenizer:
        mine = arguments.tokenizer
    else:
        compare_training(arguments, mine, theirs)

    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tiktoken
    import tokenizers
    vocabulary = json.loads(mine.read_text())["model"]["vocab"]
    table = byte_of_character()
    specials = {"<|endoftext|>": vocabulary.pop("<|endoftext|>")}
    ranks = {bytes(table[c] for c in piece): rank for piece, rank in vocabulary.items()}
    reference = tiktoken.Encoding("trained", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=specials)
    hugging_face = tokenizers.Tokenizer.from_file(str(mine))

    text = pathlib.Path(arguments.text).read_text(encoding="utf-8", errors="strict")
    size = len(text.encode())
    parts = chunks_of(text, 100_000)
    speeds = {"megalith": [], "megalith on two threads": [], "tiktoken": [], "tokenizers": []}
    for run in range(arguments.runs):
        speed, printed = encode_timed(arguments, mine, 1)
        speeds["megalith"].append(speed)
        speed, printed_by_two = encode_timed(arguments, mine, 2)
        speeds["megalith on two threads"].append(speed)
        start = time.perf_counter()
        ids = [reference.encode_ordinary(part) for part in parts]
        speeds["tiktoken"].append(size / 1e6 / (time.perf_counter() - start))
        if run == 0:
            flat = [i for part in ids for i in part]
            same = flat == [int(i) for i in printed.split()]
            print("ids equal to tiktoken's:", same, "and of two threads:", printed_by_two == printed)
        # A twentieth of the text is enough for the slowest of the three.
        some = parts[::20]
        start = time.perf_counter()
        encodings = [hugging_face.encode(part, add_special_tokens=False).ids for part in some]
        speeds["tokenizers"].append(sum(len(p.encode()) for p in some) / 1e6 / (time.perf_counter() - start))
        if run == 0:
            print("ids equal to tokenizers':", encodings == ids[::20])
    median = {name: statistics.median(values) for name, values in speeds.items()}
    print("encode, MB/s:", ", ".join(f"{name} {value:.1f}" for name, value in median.items()))
    print(f"megalith / tiktoken {median['megalith'] / median['tiktoken']:.2f} (bar 1.5), "
          f"megalith / tokenizers {median['megalith'] / median['tokenizers']:.2f} (bar 8), "
          f"two threads / one {median['megalith on two threads'] / median['megalith']:.2f} (bar 1.8)")


if __name__ == "__main__":
    main()
