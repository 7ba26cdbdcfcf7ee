"""The clock of the rivals that run in Python."""

import statistics
import time

SHORTEST_BATCH = 2e-4


def seconds(work, repeats=15):
    """Median seconds of one call, over batches that the clock can measure."""
    iterations = 1
    while True:
        begin = time.perf_counter()
        for _ in range(iterations):
            work()
        if time.perf_counter() - begin >= SHORTEST_BATCH:
            break
        iterations *= 2
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(iterations):
            work()
        times.append((time.perf_counter() - begin) / iterations)
    return statistics.median(times)
