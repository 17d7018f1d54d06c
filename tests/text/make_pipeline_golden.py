#!/usr/bin/env python3
"""Writes the golden values of pipeline_test: what the Hugging Face tokenizers library makes of nasty texts.

    python tests/text/make_pipeline_golden.py [--random N] [--output FILE]

Run from the project root with `tokenizers` installed. It trains a small model of each kind on tests/text/fixtures/train_text.txt
and combines it with every normalizer, pre-tokenizer, post-processor and decoder. The output has one JSON object a line: first the
models, then the texts, then each pipeline with the rows [number of the text, add_special, ids, offsets, decoded, decoded without
special tokens unless that is the same]. `--random N`
adds N made-up texts to each pipeline, for a longer comparison by hand.
"""
import argparse
import base64
import json
import pathlib
import random
import struct

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).parent
TEXTS = [
    "",
    "Hello, the lores! It's  done.",
    "  kami's the\tthe\n\nlo re ",
    "e\u0301x \u00e9 \u1e9b\u0323 \ufb01 \uff21\uff22 \u00bd \u0130 \u1e9e",
    "\u5b57\u3067\u3059 the\u5b57\u3067lo \u30ab\u30bf\u30ab\u30ca\u30fc",
    "a\u200db \U0001f469\u200d\U0001f4bb\U0001f9991 \u00a0x\u3000y",
    "12 345,6-7\u0967\u0968 \u00b2 ~$^ \u00bfq? \u201cx\u201d",
    "<s>the</s> lo<mask> lo [X]kami the[X] \u2581lo\u2581",
    "\u0000 \ufeffa\u007f\u00ad\u200e\ufffdb\u0085c",
    "\ud55c\uae00 \u1112\u1161\u11ab \u0939\u093f\u0928\u094d\u0926\u0940 a\u0328\u0301\u0323",
]


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def replace(pattern, content, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def bert(**changes):
    return {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True, **changes}


def byte_level(**changes):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **changes}


def split(pattern, behavior="Isolated", regex=True, invert=False):
    return {"type": "Split", "pattern": {"Regex" if regex else "String": pattern}, "behavior": behavior, "invert": invert}


def charsmap(rules):
    """A precompiled character map, as SentencePiece builds it: a double array (darts.h 0.32) and the replacements."""
    replacements, values = b"", {}
    for key in sorted(rules):
        values[key.encode()] = len(replacements)
        replacements += rules[key].encode() + b"\0"
    tree = {}
    for key, value in values.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = value
    units, used = [0] * 4096, {0}

    def place(node, at):
        # The children of the node at `at` lie at base ^ byte; its value at base ^ 0.
        labels = [0 if b is None else b for b in node]
        base = next(b for b in range(256, 4096, 256) if all((b ^ label) not in used for label in labels))
        units[at] |= (base ^ at) << 10
        for label in labels:
            used.add(base ^ label)
        if None in node:
            units[at] |= 1 << 8
            units[base] = node[None] | 1 << 31
        for byte, child in node.items():
            if byte is not None:
                units[base ^ byte] |= byte
                place(child, base ^ byte)

    place(tree, 0)
    return base64.b64encode(struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + replacements).decode()


def train():
    text = (ROOT / "fixtures/train_text.txt").read_text(encoding="utf-8")[:40000]
    specials = ["<unk>", "<s>", "</s>", "<mask>"]
    result = {}

    def add(name, model, trainer, pre_tokenizer, normalizer=None):
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.train_from_iterator([text + " Hello the ** lo."], trainer)
        result[name] = json.loads(tokenizer.to_str())["model"]

    spaces = pre_tokenizers.Metaspace()
    add("bpe", models.BPE(unk_token="<unk>", fuse_unk=True),
        trainers.BpeTrainer(vocab_size=180, special_tokens=specials, show_progress=False), spaces)
    add("bpe_affixes", models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"),
        trainers.BpeTrainer(vocab_size=180, special_tokens=specials, show_progress=False, continuing_subword_prefix="##",
                            end_of_word_suffix="</w>"), pre_tokenizers.WhitespaceSplit())
    add("unigram", models.Unigram(),
        trainers.UnigramTrainer(vocab_size=160, special_tokens=specials, unk_token="<unk>", show_progress=False), spaces)
    add("word_piece", models.WordPiece(unk_token="<unk>", max_input_chars_per_word=12),
        trainers.WordPieceTrainer(vocab_size=150, special_tokens=specials, show_progress=False), pre_tokenizers.BertPreTokenizer())
    add("word_level", models.WordLevel(unk_token="<unk>"),
        trainers.WordLevelTrainer(vocab_size=80, special_tokens=specials, show_progress=False), pre_tokenizers.Whitespace())
    add("bytes", models.BPE(),
        trainers.BpeTrainer(vocab_size=330, special_tokens=specials, show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), pre_tokenizers.ByteLevel(False))
    # Byte fallback: the tokens of all bytes, behind the rest.
    for name in ("bpe", "unigram"):
        model = json.loads(json.dumps(result[name]))
        model["byte_fallback"] = True
        for byte in range(256):
            piece = f"<0x{byte:02X}>"
            if name == "bpe":
                model["vocab"][piece] = len(model["vocab"])
            else:
                model["vocab"].append([piece, -20.0])
        result[name + "_fallback"] = model
    result["bpe_not_fused"] = {**result["bpe"], "fuse_unk": False}
    result["bpe_dropping"] = {**result["bpe"], "unk_token": None}
    result["bpe_whole_words"] = {**result["bpe"], "ignore_merges": True}
    return result


def pipelines():
    rules = {"\uff21": "A", "\ufb01": "fi", "\u00bd": "1/2", "e\u0301": "\u00e9", "\u0085": " ", "\u00ad": "", "\u3000": " ",
             "\t": " ", "\n": " ", "\ufeff": "", "\u1112\u1161\u11ab": "\ud55c"}
    precompiled = {"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}
    fallback_decoder = sequence("decoders", replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                                {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    llama = sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581"))
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                          {"Sequence": {"id": "A", "type_id": 0}},
                                                          {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [
        {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
    word_piece_decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    result = []

    def add(name, model, normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None, added=()):
        result.append({"name": name, "model": model, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
                       "post_processor": post_processor, "decoder": decoder, "added": list(added)})

    for scheme in ("always", "first", "never"):
        for whole in (True, False):
            add(f"metaspace {scheme} {whole}", "unigram", None, metaspace(scheme, whole), template, metaspace(scheme, whole))
    add("unigram fallback", "unigram_fallback", precompiled, metaspace(), template, fallback_decoder)
    add("unigram alone", "unigram")
    add("llama", "bpe_fallback", llama, None, template, fallback_decoder)
    add("gemma", "bpe_fallback", replace(" ", "\u2581"), split(" ", "MergedWithPrevious", False), template,
        sequence("decoders", replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}))
    for model in ("bpe", "bpe_not_fused", "bpe_dropping", "bpe_whole_words"):
        add(model, model, None, metaspace("first"), None, metaspace("first"))
    add("affixes", "bpe_affixes", {"type": "Lowercase"}, {"type": "Whitespace"}, None, {"type": "BPEDecoder", "suffix": "</w>"})
    add("bert", "word_piece", bert(), {"type": "BertPreTokenizer"}, {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
        word_piece_decoder)
    add("bert cased", "word_piece", bert(lowercase=False, handle_chinese_chars=False), {"type": "BertPreTokenizer"}, template,
        {**word_piece_decoder, "cleanup": False})
    add("bert stripped", "word_piece", bert(lowercase=False, strip_accents=True, clean_text=False), {"type": "BertPreTokenizer"})
    for form in ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Lowercase", "Nmt"):
        add(form, "unigram", {"type": form}, metaspace())
    add("decomposed, stripped, composed", "unigram",
        sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "NFC"}), metaspace())
    for left, right in ((True, True), (True, False), (False, True)):
        add(f"strip {left} {right}", "unigram", {"type": "Strip", "strip_left": left, "strip_right": right}, metaspace("first"))
    add("precompiled", "unigram", sequence("normalizers", precompiled, replace(" {2,}", " ", True)), metaspace())
    add("replace nothing", "unigram", replace("x*", "-", True), metaspace())
    add("replace with nothing", "unigram", replace("the", ""), metaspace())
    add("prepend", "unigram", {"type": "Prepend", "prepend": "ab"}, None)
    for pre in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"):
        add(pre, "word_level", None, {"type": pre})
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        add(f"punctuation {behavior}", "word_piece", None, {"type": "Punctuation", "behavior": behavior})
        add(f"split {behavior}", "unigram", None, split("[aeiou ]", behavior))
        add(f"split inverted {behavior}", "unigram", None, split("[aeiou]+", behavior, invert=True))
    add("digits", "unigram", None, sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, metaspace("never")))
    add("digits one by one", "unigram", None, sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, metaspace()))
    add("delimiter", "word_level", None, {"type": "CharDelimiterSplit", "delimiter": "l"})
    add("fixed length", "unigram", None, {"type": "FixedLength", "length": 3})
    add("gpt2", "bytes", None, byte_level(), byte_level(trim_offsets=True), byte_level())
    add("gpt2 prefix", "bytes", None, byte_level(add_prefix_space=True), byte_level(add_prefix_space=True), byte_level())
    add("roberta", "bytes", None, byte_level(add_prefix_space=True),
        {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": True}, byte_level())
    add("composed bytes", "bytes", {"type": "NFC"}, byte_level(), None, byte_level())
    add("digits then bytes", "bytes", None, sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level()), None,
        byte_level())
    add("bytes in a sequence", "bytes", None, sequence("pretokenizers", {"type": "WhitespaceSplit"}, byte_level(add_prefix_space=True)), None,
        byte_level())
    add("bytes normalized", "bytes", {"type": "ByteLevel"}, split("[^a-z]"), None, byte_level())
    add("byte-level unigram", "unigram", None, byte_level(), None, byte_level())
    add("ctc", "word_level", None, {"type": "Whitespace"}, None,
        {"type": "CTC", "pad_token": "<unk>", "word_delimiter_token": "l", "cleanup": True})
    add("strip decoder", "unigram", None, metaspace(), None,
        sequence("decoders", replace("\u2581", "_"), {"type": "Strip", "content": "_", "start": 1, "stop": 0},
                 {"type": "Fuse"}, {"type": "Strip", "content": "e", "start": 0, "stop": 1}))
    add("replace decoder", "unigram", None, metaspace(), None, sequence("decoders", replace("[aeiou]", "<>", True), {"type": "Fuse"},
                                                                        replace("l<>", "L")))
    added = [{"content": "[X]", "lstrip": True, "rstrip": False}, {"content": "Hello", "normalized": True},
             {"content": "\u00c9", "normalized": True}, {"content": "lo", "single_word": True, "normalized": True},
             {"content": "lo the", "normalized": False, "rstrip": True}]
    add("added tokens", "unigram", sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"}), metaspace("first"), None,
        metaspace("first"), added)
    add("added tokens of bytes", "bytes", None, byte_level(), byte_level(), byte_level(),
        [token for token in added if token["content"].isascii()])
    add("added tokens behind a prefix", "bpe_fallback", llama, None, None, fallback_decoder, added)
    return result


def full_json(pipeline, model):
    pieces = model["vocab"] if isinstance(model["vocab"], dict) else {p: i for i, (p, _) in enumerate(model["vocab"])}
    tokens = [{"id": pieces[name], "content": name, "single_word": False, "lstrip": name == "<mask>", "rstrip": False,
               "normalized": False, "special": True} for name in ("<unk>", "<s>", "</s>", "<mask>")]
    for extra in pipeline["added"]:
        known = extra["content"] in pieces
        token = {"id": pieces[extra["content"]] if known else len(pieces), "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": False, **extra}
        pieces.setdefault(extra["content"], token["id"])
        tokens.append(token)
    tokens.sort(key=lambda token: token["id"])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            **{key: pipeline[key] for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}, "model": model}


def made_up(draw):
    parts = ["the", " ", "  ", "lo", "kami", "\u00e9", "e\u0301", "\u5b57", "\u3067", "<s>", "[X]", "<mask>", "\U0001f469\u200d\U0001f4bb", "12",
             "\n", "\t", "'s", ".", "!", "\u2581", "\u0939\u093f", "\u0323", "\u0301", "\uac00", "\u1161", "A", "Hello", "\u00a0", "x", "\ufb01", "-"]
    text = "".join(draw.choice(parts) for _ in range(draw.randint(1, 14)))
    for _ in range(draw.randint(0, 2)):
        c = chr(draw.choice([draw.randrange(0x3000), draw.randrange(0xd800), draw.randrange(0xe000, 0x20000)]))
        at = draw.randint(0, len(text))
        text = text[:at] + c + text[at:]
    return text


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--random", type=int, default=0)
    arguments.add_argument("--output", default=str(ROOT / "fixtures/pipelines.jsonl"))
    arguments = arguments.parse_args()
    model_of = train()
    draw = random.Random(29)
    with open(arguments.output, "w", encoding="utf-8") as out:
        def line(value):
            out.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
        lines, texts = [], {}
        for pipeline in pipelines():
            document = full_json(pipeline, model_of[pipeline["model"]])
            try:
                tokenizer = Tokenizer.from_str(json.dumps(document))
            except Exception as error:
                raise SystemExit(f"{pipeline['name']}: {error}")
            rows = []
            for i, text in enumerate(TEXTS + [made_up(draw) for _ in range(arguments.random)]):
                add_special = i % 2 == 1 and pipeline["post_processor"] is not None
                encoding = tokenizer.encode(text, add_special_tokens=add_special)
                try:
                    decoded = [tokenizer.decode(encoding.ids, skip_special_tokens=skip) for skip in (False, True)]
                except BaseException:  # The library's decoder Strip panics for an empty text.
                    continue
                if decoded[0] == decoded[1]:
                    decoded.pop()
                rows.append([texts.setdefault(text, len(texts)), add_special, encoding.ids,
                             [o for pair in encoding.offsets for o in pair], *decoded])
            document["model"] = pipeline["model"]
            lines.append({"name": pipeline["name"], "tokenizer": document, "rows": rows})
        line(model_of)
        line(list(texts))
        for row in lines:
            line(row)


if __name__ == "__main__":
    main()
