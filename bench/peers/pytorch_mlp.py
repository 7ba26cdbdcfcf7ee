"""The step of //bench:mlp_step and the epoch of //bench:mlp_epoch in PyTorch, and what PyTorch leaves behind when gradients are
recorded.

Prints one JSON object: microseconds of a step (forward, cross-entropy, backward, SGD) for batch 32 and 128, the
median of several repeats with the number of threads that suits PyTorch best, and with --leak also the bytes that each
step of second-order training leaves behind. With --epoch instead the seconds of an epoch. {"skipped": ...} where PyTorch is not
installed.
"""

import gc
import json
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as functional
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

REPEATS = 1001
WARM_UP = 100


def make_model():
    return torch.nn.Sequential(
        torch.nn.Linear(784, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def step_microseconds(batch):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.rand(batch, 784)
    labels = torch.randint(0, 10, (batch,))

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        return time.perf_counter() - begin

    for _ in range(WARM_UP):
        step()
    return statistics.median(step() for _ in range(REPEATS)) * 1e6


def epoch_seconds(epochs=3, samples=57000, batch=500):
    """Median seconds of a shuffled epoch of the MLP 784-500-10 with AdamW; the first epoch is not counted."""
    model = torch.nn.Sequential(torch.nn.Linear(784, 500), torch.nn.ReLU(), torch.nn.Linear(500, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images = torch.rand(samples, 784)
    labels = torch.randint(0, 10, (samples,))
    times = []
    for _ in range(epochs + 1):
        begin = time.perf_counter()
        order = torch.randperm(samples)
        for start in range(0, samples, batch):
            chosen = order[start : start + batch]
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def leaked_bytes_per_step(steps=60, batch=128):
    """Gradient penalty on a copy of the model that lives for one step; Python's collector runs after each."""
    images = torch.rand(batch, 784)
    labels = torch.randint(0, 10, (batch,))

    def step():
        model = make_model()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward(create_graph=True)
        penalty = sum((parameter.grad**2).sum() for parameter in model.parameters())
        torch.autograd.grad(loss + 0.01 * penalty, list(model.parameters()))

    for _ in range(10):
        step()
        gc.collect()
    before = resident_bytes()
    for _ in range(steps):
        step()
        gc.collect()
    return (resident_bytes() - before) / steps


def blas_name():
    """The BLAS that was loaded: with the reference BLAS PyTorch is ten times slower, which is not its fault."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        names = {os.path.basename(line.split()[-1]) for line in maps if ".so" in line}
    resolved = {name for name in names if "blas" in name or "mkl" in name}
    return ", ".join(sorted(resolved)) or "unknown BLAS"


def main():
    figures = {}
    if "--epoch" in sys.argv[1:]:
        figures["library"] = "PyTorch %s with %s" % (torch.__version__, blas_name())
        figures["T10_rival_pytorch_s"] = round(epoch_seconds(), 4)
        print(json.dumps(figures))
        return
    for batch in (32, 128):
        best = None
        for threads in {1, os.cpu_count() or 1}:
            torch.set_num_threads(threads)
            microseconds = step_microseconds(batch)
            if best is None or microseconds < best[0]:
                best = (microseconds, threads)
        figures["T9_rival_pytorch_us_batch%d" % batch] = round(best[0], 2)
        figures["threads_batch%d" % batch] = best[1]
    figures["library"] = "PyTorch %s with %s" % (torch.__version__, blas_name())
    if "--leak" in sys.argv[1:]:
        import warnings

        warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
        figures["leaked_bytes_per_step"] = round(leaked_bytes_per_step())
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
