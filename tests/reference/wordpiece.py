"""wordpiece.py COUNT SEED TOKENS: lines of every kind of text, as docs/examples/minilm and PyPI's `tokenizers` number their tokens.

Words, scripts, ideographs, accents before and behind what they belong to, control and format characters, punctuation,
names of special tokens whole and broken, words that are too long, lines that are cut. With the vocabulary of MiniLM where
tools/get_minilm has put it, else with the tiny one of the tests.
"""

import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

LIMIT = 256
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Scripts, marks, symbols, and some of what lies beyond the first plane: first and last character, and how often.
BLOCKS = [
    (0x20, 0x7E, 30), (0x00, 0x1F, 2), (0x7F, 0xFF, 8), (0x100, 0x24F, 8), (0x250, 0x36F, 4), (0x370, 0x52F, 8), (0x530, 0x6FF, 6),
    (0x700, 0x8FF, 3), (0x900, 0xDFF, 8), (0xE00, 0x10FF, 5), (0x1100, 0x13FF, 3), (0x1680, 0x1CFF, 5), (0x1D00, 0x1FFF, 6),
    (0x2000, 0x206F, 6), (0x2070, 0x2BFF, 5), (0x2C00, 0x2FFF, 3), (0x3000, 0x30FF, 6), (0x3400, 0x4DBF, 2), (0x4E00, 0x9FFF, 10),
    (0xA000, 0xABFF, 4), (0xAC00, 0xD7A3, 6), (0xE000, 0xF8FF, 1), (0xF900, 0xFAFF, 3), (0xFB00, 0xFFFF, 5), (0x10000, 0x11FFF, 4),
    (0x16A00, 0x16FFF, 1), (0x1B000, 0x1D1FF, 3), (0x1D200, 0x1EFFF, 2), (0x1F000, 0x1FAFF, 4), (0x20000, 0x2FA1F, 3), (0xE0000, 0x10FFFF, 1),
]  # fmt: skip


def oracle(vocabulary):
    with open(vocabulary, encoding="utf-8") as file:
        numbers = {line.rstrip("\n"): i for i, line in enumerate(file)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([name for name in SPECIAL if name in numbers])
    ends = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.enable_truncation(LIMIT)
    return tokenizer, list(numbers)


class Lines:
    def __init__(self, seed, words):
        self.random = random.Random(seed)
        self.words = words
        self.weights = [weight for _, _, weight in BLOCKS]
        self.marks = [c for c in range(0x110000) if unicodedata.combining(chr(c))]

    def character(self):
        first, last, _ = self.random.choices(BLOCKS, self.weights)[0]
        c = self.random.randint(first, last)
        return chr(c) if not 0xD800 <= c < 0xE000 and c != 10 else "x"

    def word(self):
        r = self.random
        kind = r.randrange(12)
        if kind < 4:
            word = r.choice(self.words).removeprefix("##")
            return r.choice([word, word.upper(), word.title(), word + r.choice(self.words).removeprefix("##")])
        if kind == 4:
            return unicodedata.normalize(r.choice(["NFC", "NFD", "NFKC"]), self.run(6))
        if kind == 5:
            return "".join(self.character() + "".join(chr(r.choice(self.marks)) for _ in range(r.randrange(4))) for _ in range(r.randrange(5)))
        if kind == 6:
            return r.choice([r.choice(SPECIAL), r.choice(SPECIAL).lower(), r.choice(SPECIAL)[r.randrange(5) :], "[[MASK]]"])
        if kind == 7:
            return str(r.randrange(10 ** r.randrange(1, 12)))
        if kind == 8:
            return r.choice("aż你가") * r.choice([98, 99, 100, 101, 130])
        return self.run(r.randrange(1, 9))

    def run(self, length):
        first, last, _ = self.random.choices(BLOCKS, self.weights)[0]
        return "".join(self.character() if self.random.randrange(4) == 0 else self.in_block(first, last) for _ in range(length))

    def in_block(self, first, last):
        return chr(self.random.randint(first, last)).replace("\n", " ")

    def line(self):
        r = self.random
        length = r.choice([0, 1, 2, 5, 9, 20, 40, 300]) if r.randrange(20) == 0 else r.randrange(1, 12)
        text = ""
        for _ in range(length):
            text += self.word() + r.choice([" ", " ", " ", "", "\t", "\u00a0", "\u2003", "-", ", "])
        return text.replace("\n", "").encode("utf-8", "replace").decode("utf-8")


def main():
    count, seed, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/nonexistent"), ".cache")
    vocabulary = os.path.join(cache, "ndarc", "all-MiniLM-L6-v2", "vocab.txt")
    if not os.path.exists(vocabulary):
        vocabulary = os.path.join(os.path.dirname(program), "tiny", "vocab.txt")
    tokenizer, words = oracle(vocabulary)
    lines = Lines(seed, words)
    texts = [lines.line() for _ in range(count)]
    # Each character by itself too, those that the categories of Python's Unicode know.
    texts += ["a%sb %s" % (chr(c), chr(c)) for c in range(0x110000) if c != 10 and unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    with tempfile.TemporaryFile() as file:
        file.write("".join(text + "\n" for text in texts).encode("utf-8"))
        file.seek(0)
        printed = subprocess.run([program, vocabulary], stdin=file, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    assert len(printed) == len(texts), (len(printed), len(texts))
    wrong = 0
    for text, ids, encoded in zip(texts, printed, tokenizer.encode_batch(texts)):
        if ids != " ".join(map(str, encoded.ids)):
            wrong += 1
            if wrong <= 5:
                print("%r\n  %s\n  %s" % (text, ids, " ".join(map(str, encoded.ids))))
    cut = sum(len(ids.split()) == LIMIT for ids in printed)
    print("%d of %d lines differ, vocabulary of %d, %d lines were cut" % (wrong, len(texts), len(words), cut))
    sys.exit(wrong > 0 or cut == 0)


if __name__ == "__main__":
    main()
