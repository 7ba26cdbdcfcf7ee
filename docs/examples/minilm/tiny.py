#!/usr/bin/env python3
"""Makes what has to come out of the model of tiny_model.py, for minilm_test.c.

    tiny.py && clang-format -i tiny_values.h      (wants NumPy and the package `tokenizers`)

Writes tiny_values.h: texts, their tokens by `tokenizers`, and their embeddings, computed in doubles.
"""

import math
import pathlib

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tiny_model import HEADS, LAYERS, PLACES, WIDTH, make_weights, vocabulary

HERE = pathlib.Path(__file__).parent
TEXTS = [
    "The cat eats food.",
    "the   CAT\teats\u00a0food .",
    "A man is running and sleeping",
    "",
    " ",
    "unaffable unaffables unaffablez9",
    "hello, world!hello",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m",
    "nai\u0308ve cafe\u0301",
    "你好cat你",
    "\uf9b5\u2f00 \U0002f800",
    "가 각 한",
    "Straße ИМ ΟΔΟΣ",
    "a\u200bb a\u00adb c\u0000d e\ufffdf g\u0007h",
    "[CLS] the [MASK] cat [SEP] [mask] [[PAD]]",
    "…“hello”… €5 $9 #1",
    "a" * 100 + " " + "a" * 101,
    "cat " * 60,
    "eats " * 38 + "unaffable",
    "ক\u09cb \u0928\u093e \u0958",
    "\u1e9b\u0323 \u212b \ufb01 \u01c4 \u0130",
    "\U0001d15e\u302e\U0001d165 \u0f77",
    "\U0001f600 dog \U000e0041 \ue000",
    "DOG'S dog's (dog-eat-dog)",
]


def make_tokenizer(words):
    numbers = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(words[:5])
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.enable_truncation(PLACES)
    return tokenizer


def embed(weights, ids):
    """One text, in doubles."""
    w = {name: np.array(flat, np.float64).reshape(shape) for name, (shape, flat) in weights.items()}
    erf = np.vectorize(math.erf)

    def linear(name, x):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[name + ".weight"] + w[name + ".bias"]

    words, places = w["embeddings.word_embeddings.weight"][ids], w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm("embeddings.LayerNorm", words + places + w["embeddings.token_type_embeddings.weight"][0])
    for i in range(LAYERS):
        layer, size = "encoder.layer.%d." % i, WIDTH // HEADS
        seen = []
        for head in range(HEADS):
            q, k, v = (linear(layer + "attention.self." + part, x)[:, head * size : (head + 1) * size] for part in ("query", "key", "value"))
            scores = np.exp(q @ k.T / math.sqrt(size))
            seen.append(scores / scores.sum(-1, keepdims=True) @ v)
        x = norm(layer + "attention.output.LayerNorm", x + linear(layer + "attention.output.dense", np.concatenate(seen, -1)))
        wide = linear(layer + "intermediate.dense", x)
        wide = wide * 0.5 * (1 + erf(wide / math.sqrt(2)))
        x = norm(layer + "output.LayerNorm", x + linear(layer + "output.dense", wide))
    mean = x.mean(0)
    return mean / np.sqrt((mean * mean).sum())


def wrapped(items, indent):
    lines, line = [], indent
    for item in items:
        if len(line) + len(item) > 97:
            lines.append(line.rstrip())
            line = indent
        line += item + " "
    return "\n".join(lines + [line.rstrip().rstrip(",")])


def literal(text):
    """Bytes of UTF-8 in C; octal escapes are of three digits, so that none swallows what follows."""
    parts = [chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else "\\%03o" % b for b in text.encode()]
    lines, line = [], ""
    for part in parts:
        if len(line) + len(part) > 80:
            lines.append('"%s"' % line)
            line = ""
        line += part
    return "\n     ".join(lines + ['"%s"' % line])


def main():
    words = vocabulary()
    weights, tokenizer = make_weights(len(words)), make_tokenizer(words)
    out = ["// Written by tiny.py.", "enum { TINY_WIDTH = %d, TINY_PLACES = %d };" % (WIDTH, PLACES), ""]
    out += ["static const struct {", "    const char *text;", "    size_t bytes, count;", "    int32_t ids[TINY_PLACES];"]
    out += ["    double embedding[TINY_WIDTH];", "} tiny_values[] = {"]
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        out.append("    {%s,\n     %d,\n     %d," % (literal(text), len(text.encode()), len(ids)))
        out.append("     {\n%s\n     }," % wrapped(["%d," % i for i in ids], " " * 9))
        out.append("     {\n%s\n     }}," % wrapped(["%.15g," % x for x in embed(weights, ids)], " " * 9))
    (HERE / "tiny_values.h").write_text("\n".join(out + ["};", ""]))


if __name__ == "__main__":
    main()
