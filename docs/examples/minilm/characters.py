#!/usr/bin/env python3
"""Writes characters.inc: what BERT's normalization makes of each character, as PyPI's `tokenizers` does it.

    characters.py >characters.inc      (wants the package `tokenizers`)

Asked of the package and not of a table of Unicode: it takes categories from one version of Unicode, decompositions from
another and lower case from a third, and a text must become the same tokens here. Python's own table is asked for combining
classes alone, whose order the package is then seen to keep.
"""

import unicodedata
from importlib.metadata import version

from tokenizers import normalizers, pre_tokenizers

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by their formula


def normalizer(**kept):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **kept}).normalize_str


clean = normalizer(clean_text=True)
space_out = normalizer(handle_chinese_chars=True)
strip = normalizer(strip_accents=True)
lower = normalizer(lowercase=True)
split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def keeps_its_class(c, combining):
    """Whether the package sorts a character that it keeps by this class, beside one of another class."""
    other, its = (0x1D165, 216) if combining != 216 else (0x302E, 224)
    pair = chr(c) + chr(other) if combining > its else chr(other) + chr(c)
    return strip("a" + pair) == "a" + pair[::-1]


def effect(c):
    """(kind, what becomes of the character: a list of characters)."""
    s = chr(c)
    cleaned = clean("a" + s + "b")[1:-1]
    if cleaned != s:
        return ("DROPPED", []) if not cleaned else ("BLANK", [])
    result = [ord(x) for x in lower(strip("a" + s))[1:]]
    if c in HANGUL:
        return ("HANGUL", [])
    if space_out(s) != s:
        return ("IDEOGRAPH", result)
    combining = unicodedata.combining(s)
    if not result:
        # A mark that is taken away. Of class 0 it is a border that no other crosses while marks are sorted.
        decomposed = unicodedata.normalize("NFD", s)
        return ("BORDER" if unicodedata.combining(decomposed[0]) == 0 else "DROPPED", [])
    if combining and keeps_its_class(c, combining):
        assert result == [c]
        return ("CLASS", [combining])
    return ("LETTER", result)


def runs(items):
    """Neighbours of one kind whose value is the same, one by one or every second, in one run: [first, last, step, kind, value]."""
    out = []
    for c, kind, value in items:
        if out:
            first, last, step, kind0, value0 = out[-1]
            if (kind, value) == (kind0, value0) and (c - last == step or (first == last and c - last == 2)):
                out[-1][1:3] = c, c - last
                continue
        out.append([c, c, 1, kind, value])
    taken = {c for c, _, _ in items}
    whole = []
    for first, last, step, kind, value in out:
        # A run of every second character leaves nothing between that has a run of its own.
        apart = step == 2 and any(c in taken for c in range(first + 1, last, 2))
        whole += [[c, c, 1, kind, value] for c in range(first, last + 1, 2)] if apart else [[first, last, step, kind, value]]
    return sorted(whole)


def listed(table):
    """The runs with those short ones that follow each other as one run of step 0, whose value is where its results are listed."""
    out, results = [], []
    for run in table:
        first, last, step, kind, value = run
        if kind not in ("LETTER", "IDEOGRAPH") or step != 1 or last - first >= 4:
            out.append(run)
            continue
        if out and out[-1][2] == 0 and out[-1][3] == kind and out[-1][1] == first - 1:
            out[-1][1] = last
        else:
            out.append([first, last, 0, kind, len(results)])
        results += [c + value for c in range(first, last + 1)]
    return out, results


def write(name, rows):
    print("\nstatic const %s = {" % (name if "[" in name else name + "[]"))
    line = "   "
    for row in rows:
        if len(line) + len(row) > 98:
            print(line)
            line = "   "
        line += " " + row
    print(line)
    print("};")


def main():
    print("// Written by characters.py from what `tokenizers` %s does to each character." % version("tokenizers"))
    items, sequences = [], []
    for c in CHARACTERS:
        kind, result = effect(c)
        if kind in ("DROPPED", "BLANK", "BORDER", "HANGUL"):
            items.append((c, kind, 0))
        elif kind == "CLASS":
            items.append((c, kind, result[0]))
        elif len(result) == 1:
            if kind == "IDEOGRAPH" or result[0] != c:
                items.append((c, kind, result[0] - c))
        else:
            assert kind == "LETTER" and 2 <= len(result) <= 3
            sequences.append("{%s}," % ", ".join("0x%X" % x for x in result))
            items.append((c, "SEQUENCE", len(sequences) - 1))
    table, results = listed(runs(items))
    write("character_run character_runs", ["{0x%X, 0x%X, %d, %s, %d}," % tuple(run) for run in table])
    write("uint32_t character_results", ["0x%X," % c for c in results])
    write("uint32_t character_sequences[][3]", sequences)
    punctuation = runs([(c, "", 0) for c in CHARACTERS if len(split("a" + chr(c) + "b")) == 3])
    pairs = []
    for first, last, step, _, _ in punctuation:
        pairs += [(first, last)] if step == 1 else [(c, c) for c in range(first, last + 1, step)]
    write("character_range character_punctuation", ["{0x%X, 0x%X}," % pair for pair in pairs])


if __name__ == "__main__":
    main()
