"""The work of //bench:roofline in PyTorch: one JSON object with GFLOP/s of matrix products (T7) and GB/s of elementwise work (T8).

Results go to memory that was there before, where PyTorch takes one. {"skipped": ...} where PyTorch is not installed.
"""

import itertools
import json
import os
import sys

from clock import seconds

try:
    import torch
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

FLOATS = 1 << 24


def blas_name():
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        names = {os.path.basename(line.split()[-1]) for line in maps if ".so" in line}
    return ", ".join(sorted(name for name in names if "blas" in name or "mkl" in name)) or "unknown BLAS"


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(os.cpu_count() or 1)
    figures = {}
    for n in (256, 512, 1024, 2048):
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.zeros(n, n)
        figures["T7_rival_pytorch_gflops_%d" % n] = 2e-9 * n**3 / seconds(lambda: torch.mm(a, b, out=out), 9)
    a, b, out = (torch.randn(FLOATS // 1024, 1024) for _ in range(3))
    short = a.view(-1, 16)
    # Of two arrays in turn, so that no last-level cache holds what is read.
    in_turn = itertools.cycle((a, b))
    for name, streams, work in (
        ("add", 3, lambda: torch.add(a, b, out=out)),
        ("exp", 2, lambda: torch.exp(a, out=out)),
        ("tanh", 2, lambda: torch.tanh(a, out=out)),
        ("gelu", 2, lambda: torch.nn.functional.gelu(a)),
        ("softmax", 2, lambda: torch.softmax(a, 1)),
        ("softmax16", 2, lambda: torch.softmax(short, 1)),
        ("sum", 1, lambda: torch.sum(next(in_turn))),
    ):
        figures["T8_rival_pytorch_%s_gbps" % name] = 4e-9 * streams * FLOATS / seconds(work)
    figures["library"] = "PyTorch %s with %s" % (torch.__version__, blas_name())
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
