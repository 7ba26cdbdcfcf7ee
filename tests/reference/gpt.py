"""gpt.py COUNT SEED PROGRAM: logits and gradients of bench/workloads/gpt.c beside the same model in PyTorch."""

import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench/peers"))

import minilm_files
import numpy as np
import pytorch_gpt
import torch

SIZES, N, T = (97, 24, 32, 3, 4), 3, 20


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[3], folder], check=True)
        parameters, gradients = minilm_files.load(folder), minilm_files.load(folder + "/gradients")
        logits = np.load(folder + "/logits.npy")
    model = pytorch_gpt.GPT(*SIZES)
    model.load_state_dict({name: torch.from_numpy(x) for name, x in parameters.items()})
    window = (torch.arange(N * (T + 1)) * 7919 % SIZES[0]).view(N, T + 1)
    model.loss(window[:, :-1], window[:, 1:]).backward()
    worst = abs(model(window[:, :-1]).detach().numpy() - logits).max() / abs(logits).max()
    for name, parameter in model.named_parameters():
        theirs = parameter.grad.numpy()
        worst = max(worst, abs(gradients[name] - theirs).max() / abs(theirs).max())
    print("%d parameters, largest difference %.2g of the largest element" % (len(gradients), worst))
    sys.exit(not (worst < 1e-5 and len(gradients) == len(parameters)))


if __name__ == "__main__":
    main()
