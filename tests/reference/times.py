"""times.py COUNT SEED [NAME...]: how long random calls take beside PyTorch, of large operands in every layout. By hand.

    ./bazelw build -c opt //:libnd.so
    taskset -c 0 python tests/reference/times.py 900 2        (a Python of environment.sh; PYTHONPATH=tools/python)

The calls are those of operations.py, of about ND_REFERENCE_ELEMENTS elements (2^20), and both libraries read the same memory:
what is looked for are kinds of operands that are slow, which benches of usual ones do not show. A line each: ours by PyTorch's
time, F forward or B with gradients, the best times in microseconds, the call. Below 20 us they are those of Python. With
ND_REFERENCE_DTYPE=bfloat16 (float16) the operands of calls of floats are of that; what one of the two refuses is a line with #.
"""

import os
import sys
import time
import numpy as np
import torch
import networks
import operands
import operations
from operands import call
import fourier  # add their own to OPERATIONS
import linalg

ELEMENTS = int(os.environ.get("ND_REFERENCE_ELEMENTS", 1 << 20))
NARROW = os.environ.get("ND_REFERENCE_DTYPE") or None
SECONDS = 0.05  # of one side of a call


# shapes -----------------------------------------------------------------------------------------------------------------------
def split(random, total, ndim):
    """Sizes of `ndim` axes whose product is about `total`."""
    if ndim == 0:
        return []
    cuts = np.sort(random.uniform(0, np.log2(total), ndim - 1))
    shape = [max(1, round(2**size)) for size in np.diff([0, *cuts, np.log2(total)])]
    if ndim > 1 and random.integers(3) == 0:
        shape[int(random.integers(ndim))] = 1
    return shape


def any_shape(random, at_least=0, at_most=4):
    return split(random, ELEMENTS, int(random.integers(max(1, at_least), at_most + 1)))


def power(random, low, high):
    return int(2 ** random.uniform(low, high))


def factors(random):
    m, k, n = (power(random, 0, 10) for _ in range(3))
    a, b, c = (power(random, 0, 7) for _ in range(3))
    batch = max(1, ELEMENTS // (a * b + b * c + a * c))
    kinds = [[[ELEMENTS]] * 2, [[ELEMENTS // k, k], [k]], [[k], [k, ELEMENTS // k]], [[m, k], [k, n]], [[batch, a, b], [batch, b, c]],
             [[batch, a, b], [b, c]], [[a, b], [batch, b, c]]]
    return kinds[int(random.integers(len(kinds)))]


def layer(random):
    k, n = power(random, 0, 10), power(random, 0, 10)
    return [[max(1, ELEMENTS // 4 // max(k, n)), k], [n, k], [n]]


def inner_norm(random):
    inner = split(random, power(random, 3, 12), int(random.integers(1, 3)))
    return [[max(1, ELEMENTS // int(np.prod(inner))), *inner], inner, inner]


def channels_norm(random):
    channels, size = 2 * power(random, 0, 7), power(random, 2, 6)
    return [[max(2, ELEMENTS // (channels * size * size)), channels, size, size], [channels], [channels]]


def classes(random):
    count, places = power(random, 1, 12), [power(random, 0, 4) for _ in range(int(random.integers(3)))]
    samples = max(1, ELEMENTS // (count * int(np.prod(places, dtype=int))))
    return [[samples, count, *places], [samples, *places], [count]]


def image(axes):
    def shapes(random):
        size, channels = {1: 512, 2: 48, 3: 16}[axes], power(random, 0, 7)
        return [[max(1, ELEMENTS // 2 // (channels * size**axes)), channels, *(size + int(random.integers(3)) for _ in range(axes))]]

    return shapes


def conv(axes, transposed):
    def shapes(random):
        groups = int(random.choice([1, 1, 2, 16]))
        into, out = (power(random, 0, 5 if groups < 16 else 2) for _ in range(2))
        kernel, size = [int(random.choice([1, 2, 3, 3, 5])) for _ in range(axes)], {1: 400, 2: 36, 3: 12}[axes]
        x = [int(random.choice([1, 4, 8])), groups * into, *(size + int(random.integers(3)) for _ in range(axes))]
        return [x, ([groups * into, out] if transposed else [groups * out, into]) + kernel, [groups * out]]

    return shapes


def attention(random):
    length, seen, size, value = (power(random, 3, 8) for _ in range(4))
    return [[8, length, min(size, 128)], [8, seen, min(size, 128)], [8, seen, min(value, 128)], [length, seen]]


SHAPES = {
    "nd_matmul": factors, "nd_linear": layer, "nd_linear_activation": layer, "nd_attention": attention,
    "nd_outer": lambda random: [[1024], [ELEMENTS // 1024]], "nd_take": lambda random: [any_shape(random), [1000]],
    "nd_stack": lambda random: [any_shape(random, 1, 3)] * 2, "nd_tile": lambda random: [any_shape(random, 1, 3)],
    "nd_embedding": lambda random: [[5000, power(random, 0, 8)], [4000]],
    "nd_layer_norm": inner_norm, "nd_rms_norm": lambda random: inner_norm(random)[:2],
    "nd_group_norm": channels_norm, "nd_batch_norm": channels_norm, "nd_instance_norm": channels_norm,
    "nd_nll_loss": classes, "nd_cross_entropy_with": classes,
    "nd_interpolate": lambda random: image(int(random.integers(1, 4)))(random), "nd_unfold": image(2),
    "nd_pixel_shuffle": lambda random: [[8, 64, 40, 40]], "nd_pixel_unshuffle": lambda random: [[8, 16, 80, 80]],
}
for axes in (1, 2, 3):
    SHAPES |= {f"nd_{name}{axes}d": image(axes) for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")}
    SHAPES |= {f"nd_conv{axes}d": conv(axes, False), f"nd_conv_transpose{axes}d": conv(axes, True)}


def interpolate_extra(random, shapes):
    axes = len(shapes[0]) - 2
    mode = int(random.integers(4 if axes == 2 else 3))
    return mode, mode >= 2 and bool(random.integers(2)), None, [float(random.choice([0.5, 0.75, 1.5, 2.0])) for _ in range(axes)]


# calls ------------------------------------------------------------------------------------------------------------------------
def best(function):
    """Seconds."""
    function()
    shortest, until = np.inf, time.perf_counter() + SECONDS
    while True:
        begin = time.perf_counter()
        function()
        end = time.perf_counter()
        shortest = min(shortest, end - begin)
        if end > until:
            return shortest


def values(operation, random, shape, dtype):
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "float" not in dtype:
        return random.integers(1 if dtype.startswith("u") else -4, 5, shape).astype(dtype)
    return random.uniform(operation.low, operation.high, shape).astype(dtype)


def compare(operation, random):
    dtype = str(random.choice(operation.dtypes))
    narrow = NARROW if "float" in dtype else None
    if NARROW and not narrow:
        return
    shapes = SHAPES.get(operation.name, operation.shapes)(random)
    if not shapes or max(int(np.prod(shape)) for shape in shapes) > 16 * ELEMENTS:
        return
    make_extra = interpolate_extra if operation.name == "nd_interpolate" else operation.extra
    extra = make_extra(random, shapes) if make_extra else None
    layouts = [str(random.choice(operation.layouts)) if random.integers(3) else "contiguous" for _ in shapes]
    ours, theirs, wanted = [], [], []
    for i, (shape, layout) in enumerate(zip(shapes, layouts)):
        make = operation.index.get(i)
        array = make(random, shapes, extra) if make else values(operation, random, shape, dtype)
        if make and array.dtype == np.float64:
            array = array.astype(dtype)
        wants = operation.order > 0 and "float" in dtype and not make
        floats = np.issubdtype(array.dtype, np.floating)
        x, _ = operands.operand(array, layout, random, wants, narrow if floats else None)
        y = torch.from_dlpack(call("nd_detach", x)).requires_grad_(wants)
        ours.append(x)
        theirs.append(y)
        if wants:
            wanted.append(i)
    given = operation.arguments(ours, extra)
    what = f"{operation.name} {narrow or dtype} {shapes} {layouts} {extra}"

    def run():
        return operation.run(given) if operation.run else call(operation.name, *given)

    def show(kind, own, other):
        print(f"{own / other:.2f} {kind} {own * 1e6:.0f} {other * 1e6:.0f} {what}", flush=True)

    with operands.no_grad(), torch.no_grad():
        show("F", best(run), best(lambda: operation.reference(theirs, extra)))
    result = operation.reference(theirs, extra)
    if not wanted or not result.requires_grad or result.numel() > 16 * ELEMENTS:
        return
    weights = np.ones(tuple(result.shape), dtype)
    factor, other_factor = operands.from_numpy(weights, narrow), torch.tensor(weights, dtype=result.dtype)
    leaves, other_leaves = [ours[i] for i in wanted], [theirs[i] for i in wanted]

    def with_gradients():
        operands.grad(call("nd_sum", call("nd_mul", run(), factor), [], False), leaves)

    def others_with_gradients():
        torch.autograd.grad((operation.reference(theirs, extra) * other_factor).sum(), other_leaves, allow_unused=True)

    show("B", best(with_gradients), best(others_with_gradients))


def main():
    count, seed, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    operations.any_shape = any_shape
    operations.full_shape = networks.full_shape = lambda random, at_least=0: any_shape(random, at_least)
    chosen = [o for o in operations.OPERATIONS if operands.has(o.name) and (not names or o.name in names)]
    for number in range(count):
        operation = chosen[number % len(chosen)]
        try:
            compare(operation, np.random.default_rng([seed, number]))
        except (AssertionError, operands.Error, RuntimeError, IndexError, TypeError, ValueError, BufferError) as error:
            print(f"# {operation.name}, call {number}: {type(error).__name__}: {str(error).strip().splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
