#!/usr/bin/env python3
"""tiny_model.py FOLDER: writes a random encoder of the shape of all-MiniLM-L6-v2 and some thousand numbers.

config.json, model.safetensors and vocab.txt, the same on every machine: the numbers are sums of doubles, rounded once. Wants
nothing beside Python; the build runs it, and tiny.py takes the model from here.
"""

import json
import math
import pathlib
import random
import struct
import sys

WIDTH, LAYERS, HEADS, INNER, PLACES = 16, 2, 2, 32, 40
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = "the cat dog eat eats food man sleep un hello world run a in of is and naive cafe".split()
PIECES = ["##s", "##ing", "##aff", "##able", "##er", "##ed", "##ß", "##и", "##" + "\u1161", "##" + "\u11a8", "##9"]
OTHERS = list(".,!?-'\"()[]#$€…“”") + list("0123456789") + ["你", "好", "ß", "и", "м", "ο", "\u1100", "\u1112", "\u09c7", "\u093e", "α"]


def vocabulary():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + OTHERS + list(LETTERS) + WORDS + PIECES + ["##" + x for x in LETTERS if x != "z"]
    return list(dict.fromkeys(words))


def make_weights(rows):
    """Name -> (shape, numbers in a row)."""
    shapes = {
        "embeddings.word_embeddings.weight": (rows, WIDTH),
        "embeddings.position_embeddings.weight": (PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for i in range(LAYERS):
        name = "encoder.layer.%d." % i
        dense = {"attention.self." + part: (WIDTH, WIDTH) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (WIDTH, WIDTH), "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER)}
        for part, shape in dense.items():
            shapes |= {name + part + ".weight": shape, name + part + ".bias": shape[:1]}
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {name + part + ".weight": (WIDTH,), name + part + ".bias": (WIDTH,)}
    numbers = random.Random(11)
    weights = {}
    for name, shape in shapes.items():
        scale, middle = 0.1 if name.endswith("bias") else 0.5, 1 if name.endswith("LayerNorm.weight") else 0
        flat = [middle + scale * (sum(numbers.random() for _ in range(12)) - 6) for _ in range(math.prod(shape))]
        weights[name] = (shape, struct.unpack("<%df" % len(flat), struct.pack("<%df" % len(flat), *flat)))
    return weights


def write_safetensors(path, weights):
    header, data = {}, b""
    for name, (shape, flat) in weights.items():
        numbers = struct.pack("<%df" % len(flat), *flat)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main(folder):
    words = vocabulary()
    sizes = {"vocab_size": len(words), "hidden_size": WIDTH, "num_hidden_layers": LAYERS}
    sizes |= {"num_attention_heads": HEADS, "intermediate_size": INNER, "max_position_embeddings": PLACES}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(sizes, indent=2) + "\n")
    (folder / "vocab.txt").write_text("".join(word + "\n" for word in words), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", make_weights(len(words)))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
