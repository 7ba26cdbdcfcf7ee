"""The work of //bench:tensor_bytes in PyTorch or NumPy (its argument): resident bytes of a live tensor (T18), as one JSON object.

{"skipped": ...} where the library is not installed. Each size is measured in a process of its own.
"""

import json
import os
import sys

SIZES = ((16, 1_000_000), (4096, 20_000))


def resident_kb():
    with open("/proc/self/smaps_rollup", encoding="ascii", errors="replace") as rollup:
        for line in rollup:
            if line.startswith("Rss:"):
                return float(line.split()[1])
    raise OSError("the system does not say what is resident")


def measure(make, floats, count):
    arrays = [None] * count
    first = make(floats, 1.5)
    values = [1.5 + i for i in range(64)]
    before = resident_kb()
    for i in range(count):
        arrays[i] = make(floats, values[i % 64])
    return (resident_kb() - before) * 1024 / count


def measure_apart(make, floats, count):
    receiver, sender = os.pipe()
    if os.fork() == 0:
        os.write(sender, repr(measure(make, floats, count)).encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        text = pipe.read()
    os.wait()
    return float(text)


def main():
    name = sys.argv[1]
    try:
        if name == "torch":
            import torch

            key, library = "rival_pytorch", "PyTorch " + torch.__version__
            torch.set_num_threads(1)
            make = lambda floats, value: torch.full((floats,), value, dtype=torch.float32)
        else:
            import numpy

            key, library = "rival_numpy", "NumPy " + numpy.__version__
            make = lambda floats, value: numpy.full(floats, value, dtype=numpy.float32)
    except ImportError:
        print(json.dumps({"skipped": "%s is not installed for %s" % (name, sys.executable)}))
        return
    figures = {"library": library}
    for floats, count in SIZES:
        figures["T18_%s_bytes_%d_floats" % (key, floats)] = measure_apart(make, floats, count)
    print(json.dumps(figures))


main()
