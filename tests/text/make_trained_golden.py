#!/usr/bin/env python3
"""Trains small vocabularies with the Hugging Face tokenizers library: the golden values of bpe_trainer_test.

Run from the project root with `tokenizers` installed. Writes tests/text/fixtures/trained_{gpt2,llama3}.json from
tests/text/fixtures/train_text.txt, which is words drawn with a fixed seed from a small made-up grammar.
"""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_text():
    draw = random.Random(17)
    syllables = ["ka", "lo", "mi", "the", "ing", "re", "un", "sta", "é", "ñu", "字", "です", "ion", "al"]
    words = ["".join(draw.choice(syllables) for _ in range(draw.randint(1, 4))) for _ in range(900)]
    lines = []
    for _ in range(1500):
        line = [words[min(int(draw.paretovariate(0.7)) - 1, len(words) - 1)] for _ in range(draw.randint(1, 12))]
        if draw.random() < 0.2:
            line.append(str(draw.randint(0, 99999)))
        lines.append("  " * draw.randint(0, 2) + " ".join(line) + draw.choice([".", "!", "'s", "?!", " --", ""]))
    return "\n".join(lines) + "\n"


def main():
    fixtures = pathlib.Path("tests/text/fixtures")
    text = make_text()
    (fixtures / "train_text.txt").write_text(text, encoding="utf-8")
    for name in ("gpt2", "llama3"):
        tokenizer = Tokenizer(models.BPE())
        if name == "gpt2":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=["<|endoftext|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator([text], trainer)
        model = json.loads(tokenizer.to_str())["model"]
        (fixtures / f"trained_{name}.json").write_text(
            json.dumps({"vocab": model["vocab"], "merges": model["merges"]}, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
