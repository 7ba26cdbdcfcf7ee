"""The steps of //bench:network_step in PyTorch: a CNN and a transformer block.

Prints one JSON object: the median microseconds of a step (forward, loss, backward, optimizer) on one thread and on as many
as there are cores. {"skipped": ...} where PyTorch is not installed.
"""

import json
import os
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

REPEATS = 301
WARM_UP = 30
BATCH, LENGTH, WIDTH, HEADS = 8, 64, 256, 8


def make_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.queries, self.keys, self.values, self.mix = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        queries, keys, values = (
            part(x).view(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.queries, self.keys, self.values)
        )
        seen = functional.scaled_dot_product_attention(queries, keys, values)
        return self.mix(seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))

    def forward(self, x):
        half = x + self.attend(self.norm_1(x))
        return half + self.narrow(functional.gelu(self.widen(self.norm_2(half))))


def cnn_step(batch):
    model = make_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.rand(batch, 1, 28, 28)
    labels = torch.randint(0, 10, (batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def block_step():
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(BATCH, LENGTH, WIDTH)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def microseconds(step):
    def timed():
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin

    for _ in range(WARM_UP):
        timed()
    return statistics.median(timed() for _ in range(REPEATS)) * 1e6


def main():
    figures = {"library": "PyTorch %s" % torch.__version__}
    for threads, end in ((1, "_one_thread"), (os.cpu_count() or 1, "")):
        torch.set_num_threads(threads)
        for batch in (32, 128):
            figures["T22_rival_pytorch_us_cnn_batch%d%s" % (batch, end)] = round(microseconds(cnn_step(batch)), 2)
        figures["T22_rival_pytorch_us_block%s" % end] = round(microseconds(block_step()), 2)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
