"""The files of tools/get_minilm, for the rivals of //bench:minilm, and the sentences that they are timed with."""

import json
import os
import sys
import time

import numpy

LENGTH = 64
COUNTS = (1, 8, 32)
SECONDS = 1.2  # of each figure


def folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/nonexistent"), ".cache")
    return os.path.join(cache, "ndarc", "all-MiniLM-L6-v2")


def need(path):
    """Ends the program as a rival that cannot run, where the model is not."""
    if not os.path.exists(os.path.join(path, "model.safetensors")):
        print(json.dumps({"skipped": "no model in %s (tools/get_minilm fetches it)" % path}))
        sys.exit(0)


def load(path, name="model"):
    """Arrays by name: safetensors is a length, a header of JSON, and the numbers."""
    with open(os.path.join(path, name + ".safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    types = {"F32": numpy.float32, "I64": numpy.int64}
    return {
        name: numpy.frombuffer(data[slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"]).copy()
        for name, entry in header.items()
    }


def load_config(path):
    with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def tokens(count):
    """The same numbers as in bench/minilm.c."""
    return (1000 + numpy.arange(count * LENGTH, dtype=numpy.int64) * 7919 % 20000).reshape(count, LENGTH)


def microseconds(step):
    """The median over a time, after a third of it that is not counted."""
    begin, warm, times = time.perf_counter(), None, []
    while not times or time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        step()
        end = time.perf_counter()
        if warm is None and end - begin > SECONDS / 3:
            warm, times = len(times), []
        times.append(end - start)
    return sorted(times)[len(times) // 2] * 1e6
