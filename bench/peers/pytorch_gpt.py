"""GPT-2's architecture in PyTorch: the step of //bench:gpt_step, and the model of the workload "transformer".

Prints one JSON object: the median milliseconds of a step (forward, loss, backward, AdamW) of 124 M parameters, 4 windows of
64 tokens, on one thread and on as many as there are cores. {"skipped": ...} where PyTorch is not installed.
"""

import json
import math
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

BATCH, LENGTH, REPEATS, WARM_UP = 4, 64, 5, 2


def deviation_of(width):
    return 0.02 * math.sqrt(768 / width)


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads, deviation = heads, deviation_of(width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for part in (self.project, self.mix, self.widen, self.narrow):
            ends = part in (self.mix, self.narrow)
            nn.init.normal_(part.weight, std=deviation / math.sqrt(2 * layers) if ends else deviation)
            nn.init.zeros_(part.bias)

    def attend(self, x):
        n, t, width = x.shape
        parts = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.project(x).split(width, 2))
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.mix(seen.transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        half = x + self.attend(self.norm_1(x))
        return half + self.narrow(functional.gelu(self.widen(self.norm_2(half)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, width, layers, heads):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        nn.init.normal_(self.words.weight, std=deviation_of(width))
        nn.init.normal_(self.places.weight, std=deviation_of(width))
        self.blocks = nn.Sequential(*(Block(width, heads, layers) for _ in range(layers)))
        self.last_norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        return functional.linear(self.last_norm(self.blocks(x)), self.words.weight)

    def loss(self, ids, targets):
        return functional.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


class Transformer:
    """The workload, in the form of pytorch_workloads.py; text: [bytes], given: its Given."""

    BATCH, LENGTH, WARM_UP = 4, 128, 40

    def __init__(self, steps, text, given):
        self.text, self.given, self.steps = text, given, 0
        self.model = GPT(256, 128, 128, 4, 4)
        given.fill(self.model, "model")
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.99), fused=given.fused)
        warm_up = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1 / self.WARM_UP, 1.0, self.WARM_UP)
        falling = max(steps - self.WARM_UP, 1)
        cosine = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda i: 0.05 + 0.475 * (1 + math.cos(math.pi * min(i / falling, 1))))
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warm_up, cosine], [self.WARM_UP])

    def draw_windows(self):
        device = self.text.device
        starts = torch.randint(0, len(self.text) - self.LENGTH, (self.BATCH, 1), device=device)
        return self.text[starts + torch.arange(self.LENGTH + 1, device=device)]

    def step(self):
        window = self.given.draw("windows", self.steps, self.draw_windows)
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(window[:, :-1], window[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


def milliseconds(step):
    def timed():
        begin = time.perf_counter()
        step()
        return (time.perf_counter() - begin) * 1e3

    for _ in range(WARM_UP):
        timed()
    return statistics.median(timed() for _ in range(REPEATS))


def main():
    model = GPT(50257, 1024, 768, 12, 12)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    window = torch.randint(0, 50257, (BATCH, LENGTH + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        model.loss(window[:, :-1], window[:, 1:]).backward()
        optimizer.step()

    figures = {"library": "PyTorch %s" % torch.__version__}
    for threads, end in ((1, "_one_thread"), (os.cpu_count() or 1, "")):
        torch.set_num_threads(threads)
        figures["T21_rival_pytorch_ms_step%s" % end] = round(milliseconds(step), 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
