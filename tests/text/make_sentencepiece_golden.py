#!/usr/bin/env python3
"""Writes the golden values of model_files_test: SentencePiece models and a tiktoken file, with the ids of their own libraries.

Run from the project root with `sentencepiece` and `tiktoken` installed. The models are trained on tests/text/fixtures/train_text.txt
with a small rule file in place of the character map of 230 KB that SentencePiece ships. Each line of the output is
[file, text, ids, decoded].
"""
import base64
import json
import pathlib
import random
import tempfile

import sentencepiece
import tiktoken

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
RULES = {"\uff21": "A", "\ufb01": "fi", "\u00bd": "1/2", "e\u0301": "\u00e9", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\u200b": "",
         "\u30ab\u3099": "\u30ac", "A": "a", "H": "h"}
MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=150),
    "unigram_bytes": dict(model_type="unigram", vocab_size=420, byte_fallback=True, user_defined_symbols=["<sep>", "##"]),
    "unigram_suffix": dict(model_type="unigram", vocab_size=150, treat_whitespace_as_suffix=True),
    "bpe": dict(model_type="bpe", vocab_size=150),
    "bpe_bytes": dict(model_type="bpe", vocab_size=420, byte_fallback=True, user_defined_symbols=["<sep>", "lo the"],
                      normalization_rule_name="identity", remove_extra_whitespaces=False),
    "bpe_over_spaces": dict(model_type="bpe", vocab_size=200, add_dummy_prefix=False, split_by_whitespace=False),
}
PARTS = ["the", " ", "  ", "lo", "kami", "\u00e9", "e\u0301", "\u5b57", "\u3067\u3059", "<s>", "<sep>", "##", "lo the", "\U0001f469\u200d\U0001f4bb", "12",
         "\n", "\t", "'s", ".", "!", "\u2581", "\u0939\u093f", "\u0301", "A", "Hello", "\u00a0", "\ufb01", "\u00bd", "\u30ab\u3099", "\u200b", "\0"]


def texts():
    draw = random.Random(5)
    made = ["".join(draw.choice(PARTS) for _ in range(draw.randint(1, 16))) for _ in range(24)]
    return ["", " ", "   ", "the lo", " the  lo ", "a" * 70 + " " * 70, "lo" * 60] + made


def main():
    text = (FIXTURES / "train_text.txt").read_text(encoding="utf-8")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        rules, source = pathlib.Path(folder) / "rules.tsv", pathlib.Path(folder) / "text.txt"
        rules.write_text("".join(" ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in value) + "\n"
                                 for key, value in RULES.items()), encoding="utf-8")
        source.write_text(text, encoding="utf-8")
        for name, options in MODELS.items():
            if "normalization_rule_name" not in options:
                options["normalization_rule_tsv"] = str(rules)
            sentencepiece.SentencePieceTrainer.train(input=str(source), model_prefix=f"{folder}/{name}", minloglevel=2, **options)
            (FIXTURES / f"sp_{name}.model").write_bytes(pathlib.Path(f"{folder}/{name}.model").read_bytes())
            processor = sentencepiece.SentencePieceProcessor(model_file=str(FIXTURES / f"sp_{name}.model"))
            for one in texts():
                ids = processor.encode(one)
                rows.append([f"sp_{name}.model", one, ids, processor.decode(ids)])
    # Ranks as byte-pair encoding of the words gives them.
    vocabulary = json.loads((FIXTURES / "trained_gpt2.json").read_text(encoding="utf-8"))["vocab"]
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    letters = {chr(b): b for b in printable}
    letters.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
    pieces = [bytes(letters[c] for c in piece) for piece in vocabulary if piece != "<|endoftext|>"][:600]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    (FIXTURES / "ranks.tiktoken").write_bytes(b"".join(base64.b64encode(p) + b" %d\n" % r for p, r in ranks.items()))
    cl100k = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
    encoding = tiktoken.Encoding("ranks", pat_str=cl100k, mergeable_ranks=ranks, special_tokens={})
    for one in texts():
        ids = encoding.encode_ordinary(one)
        rows.append(["ranks.tiktoken", one, ids, encoding.decode(ids)])
    (FIXTURES / "model_files.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
