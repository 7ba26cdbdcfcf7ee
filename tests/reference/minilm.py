"""minilm.py COUNT SEED EMBEDDINGS: texts of every kind and length, as docs/examples/minilm embeds them and PyTorch does.

The real model and the real vocabulary, where tools/get_minilm has put them; the tokens are PyPI's. Each element within 1e-5.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench/peers"))

import minilm_files
import numpy as np
import pytorch_minilm
import torch
import wordpiece

PROSE = "The collector frees what only a cycle keeps alive, and nobody has to say when; counts free all the rest at once. "


def main():
    count, seed, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    folder = minilm_files.folder()
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        print("SKIPPED: no model in %s (tools/get_minilm fetches it)" % folder)
        return
    tokenizer, words = wordpiece.oracle(os.path.join(folder, "vocab.txt"))
    lines = wordpiece.Lines(seed, words)
    texts = [lines.line().replace("\0", "") for _ in range(count)]
    texts += [PROSE[:i] for i in range(1, len(PROSE), 7)] + [PROSE * i for i in (2, 5, 20)] + ["", " "]
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "embeddings.npy")
        subprocess.run([program, folder, path], input="".join(text + "\n" for text in texts).encode(), check=True)
        ours = np.load(path)
    assert ours.shape == (len(texts), 384) and ours.dtype == np.float32
    encoder = pytorch_minilm.Encoder(folder, False)
    worst = 0.0
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    for i, ids in enumerate(encoded):
        theirs = encoder.embed(torch.tensor([ids])).numpy()[0]
        worst = max(worst, float(abs(ours[i] - theirs).max()))
    # PyTorch's own batch, filled up, to see that its mask says the same.
    some = encoded[-8:]
    filled = torch.tensor([ids + [0] * (max(map(len, some)) - len(ids)) for ids in some])
    theirs = encoder.embed(filled, torch.tensor(list(map(len, some)))).numpy()
    worst = max(worst, float(abs(ours[-8:] - theirs).max()))
    print("%d texts, largest difference %.2g" % (len(texts), worst))
    sys.exit(not worst <= 1e-5)


if __name__ == "__main__":
    main()
