"""Dead rings and an idle collection in CPython, for bench/collector.c: one JSON object on standard output."""
import gc
import json
import platform
import statistics
import time

MILLION = 1_000_000


class Cell:
    __slots__ = ("next",)


def ring(size):
    first = last = Cell()
    for _ in range(size - 1):
        cell = Cell()
        cell.next = last
        last = cell
    first.next = last


def rings_ns(size, repeats=3):
    times = []
    for _ in range(repeats):
        for _ in range(MILLION // size):
            ring(size)
        start = time.perf_counter()
        gc.collect()
        times.append((time.perf_counter() - start) * 1e9 / MILLION)
    return statistics.median(times)


def idle_ns(repeats=5):
    """A full collection that finds nothing, beside one million live objects."""
    alive = [Cell() for _ in range(MILLION)]
    for cell in alive:
        cell.next = None
    gc.collect()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        gc.collect()
        times.append((time.perf_counter() - start) * 1e9)
    return statistics.median(times)


gc.disable()
print(json.dumps({
    "library": "CPython " + platform.python_version(),
    "T11_rival_cpython_ring2_ns_per_object": rings_ns(2),
    "T11_rival_cpython_ring100_ns_per_object": rings_ns(100),
    "T11_rival_cpython_ring1m_ns_per_object": rings_ns(MILLION),
    "T12_rival_cpython_ns": idle_ns(),
}))
