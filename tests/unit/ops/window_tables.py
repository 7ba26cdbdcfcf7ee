#!/usr/bin/env python3
"""window_tables.py: writes what PyTorch computes for random windows to window_tables.inc beside it.

Each row is one call of one operation in f64: its sizes and options, the result's shape, and two sums of the result and of the gradient
of each operand, with coefficients that differ from element to element. window_test.c makes the same operands and the same sums.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy && /tmp/torch/bin/python tests/unit/ops/window_tables.py
"""

import pathlib
import random

import torch
import torch.nn.functional as F

SEED = 20261122


def operand(which, shape):
    count = torch.Size(shape).numel()
    i = torch.arange(count, dtype=torch.int64)
    return (((i * 7919 + 31 * which) % 41 - 20).double() / 8).reshape(shape)


def sums(x):
    i = torch.arange(x.numel(), dtype=torch.int64)
    flat = x.reshape(-1)
    return [float((flat * ((i * factor) % 23 - 11).double()).sum()) for factor in (5, 7)]


def three(values):
    values = list(values)
    return values + [0] * (3 - len(values))


def five(values):
    return list(values) + [0] * (5 - len(values))


class Table:
    def __init__(self):
        self.rows = []

    def add(self, kind, axes, function, shapes, a=(), b=(), c=(), d=(), numbers=(0, 0)):
        """shapes: of x, of weight and bias where there are any."""
        operands = [operand(k, shape).requires_grad_() for k, shape in enumerate(shapes)]
        try:
            y = function(*operands)
        except (RuntimeError, ValueError):
            return False
        if y.numel() == 0 or y.numel() > 4000:
            return False
        gradients = torch.autograd.grad(y, operands, operand(3, y.shape))
        expected = [sums(y.detach())] + [sums(g) for g in gradients] + [[0, 0]] * (3 - len(operands))
        def braces(values):
            return "{" + ", ".join(repr(v) for v in values) + "}"
        shapes = list(shapes) + [()] * (3 - len(shapes))
        row = [kind, str(axes), braces(five(shapes[0])), braces(five(shapes[1])), "true" if shapes[2] else "false"]
        row += [braces(three(v)) for v in (a, b, c, d)] + [braces(numbers), braces(five(y.shape))]
        row += ["{" + ", ".join(braces(e) for e in expected) + "}"]
        self.rows.append("{" + ", ".join(row) + "},")
        return True

    def add_many(self, count, make):
        made = 0
        while made < count:
            made += make()


def numbers(rng, axes, low, high):
    return [rng.randint(low, high) for _ in range(axes)]


def convolutions(table, rng):
    plain = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
    turned = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

    def one():
        axes = rng.randint(1, 3)
        groups = rng.choice([1, 1, 2, 3])
        ci, co = groups * rng.randint(1, 2), groups * rng.randint(1, 3)
        kernel, size = numbers(rng, axes, 1, 3), numbers(rng, axes, 1, 7 - axes)
        stride, padding, dilation = numbers(rng, axes, 1, 4), numbers(rng, axes, 0, 2), numbers(rng, axes, 1, 3)
        extra = [rng.choice([0, 0, rng.randint(-p, 2)]) for p in padding]
        shapes = [[rng.randint(1, 2), ci] + size, [co, ci // groups] + kernel] + rng.choice([[], [[co]]])

        def run(x, weight, bias=None):
            sides = []
            for p, e in zip(reversed(padding), reversed(extra)):
                sides += [p, p + e]
            return plain[axes](F.pad(x, sides), weight, bias, stride, 0, dilation, groups)

        return table.add("CONV", axes, run, shapes, stride, padding, dilation, extra, (groups, 0))

    def one_transposed():
        axes = rng.randint(1, 3)
        groups = rng.choice([1, 1, 2, 3])
        ci, co = groups * rng.randint(1, 2), groups * rng.randint(1, 2)
        kernel, size = numbers(rng, axes, 1, 3), numbers(rng, axes, 1, 6 - axes)
        stride, padding, dilation = numbers(rng, axes, 1, 4), numbers(rng, axes, 0, 2), numbers(rng, axes, 1, 3)
        output = [rng.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation)]
        shapes = [[rng.randint(1, 2), ci] + size, [ci, co // groups] + kernel] + rng.choice([[], [[co]]])

        def run(x, weight, bias=None):
            return turned[axes](x, weight, bias, stride, padding, output, groups, dilation)

        return table.add("CONV_TRANSPOSE", axes, run, shapes, stride, padding, dilation, output, (groups, 0))

    table.add_many(45, one)
    table.add_many(45, one_transposed)


def pools(table, rng):
    largest = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
    mean = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
    adaptive = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
    adaptive_max = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}

    def common():
        axes = rng.randint(1, 3)
        kernel = numbers(rng, axes, 1, 4)
        shape = [rng.randint(1, 2), rng.randint(1, 2)] + numbers(rng, axes, 1, 9 - 2 * axes)
        return axes, shape, kernel, numbers(rng, axes, 1, 5), [rng.randint(0, k // 2) for k in kernel]

    def one_max():
        axes, shape, kernel, stride, padding = common()
        dilation, ceil = numbers(rng, axes, 1, 3), rng.random() < 0.5
        # PyTorch gives -infinity for a window that holds no element; we refuse it.
        if any(p > 0 and d > s for p, d, s in zip(padding, dilation, shape[2:])):
            return False
        return table.add("MAX_POOL", axes, lambda x: largest[axes](x, kernel, stride, padding, dilation, ceil), [shape],
                         kernel, stride, padding, dilation, (int(ceil), 0))

    def one_avg():
        axes, shape, kernel, stride, padding = common()
        ceil, include = rng.random() < 0.5, rng.random() < 0.5
        divisor = rng.choice([0, 0, 7]) if axes > 1 else 0
        arguments = [kernel, stride, padding, ceil, include] + ([divisor or None] if axes > 1 else [])
        return table.add("AVG_POOL", axes, lambda x: mean[axes](x, *arguments), [shape], kernel, stride, padding, (),
                         (int(ceil) + 2 * int(include), divisor))

    def one_adaptive():
        axes, shape, _, sizes, _ = common()
        which, functions = rng.choice([("ADAPTIVE_AVG_POOL", adaptive), ("ADAPTIVE_MAX_POOL", adaptive_max)])
        return table.add(which, axes, lambda x: functions[axes](x, sizes), [shape], sizes)

    table.add_many(30, one_max)
    table.add_many(30, one_avg)
    table.add_many(24, one_adaptive)


def images(table, rng):
    names = {1: "linear", 2: "bilinear", 3: "trilinear"}

    def one_interpolation():
        axes, mode = rng.randint(1, 3), rng.randint(0, 3)
        axes = 2 if mode == 3 else axes
        align = mode > 1 and rng.random() < 0.5
        size = numbers(rng, axes, 1, 6)
        shape = [rng.randint(1, 2), rng.randint(1, 2)] + size
        word = ["nearest", "nearest-exact", names[axes], "bicubic"][mode]
        options = {"align_corners": align} if mode > 1 else {}
        if rng.random() < 0.4:  # by scale, a number of eighths
            eighths = numbers(rng, axes, 3, 27)
            # Of two axes and more PyTorch takes a size that is doubled or stays for a scale of 2 or 1, whatever was given.
            if mode == 0 and any(e % 8 and s * e // 8 in (s, 2 * s) for e, s in zip(eighths, size)):
                return False
            options["scale_factor"] = [e / 8 for e in eighths]
            return table.add("INTERPOLATE_SCALE", axes, lambda x: F.interpolate(x, mode=word, **options), [shape], eighths, (), (), (),
                             (mode, int(align)))
        sizes = numbers(rng, axes, 1, 9)
        return table.add("INTERPOLATE", axes, lambda x: F.interpolate(x, size=sizes, mode=word, **options), [shape], sizes, (), (), (),
                         (mode, int(align)))

    def one_unfold():
        kernel, size = numbers(rng, 2, 1, 3), numbers(rng, 2, 1, 6)
        stride, padding, dilation = numbers(rng, 2, 1, 4), numbers(rng, 2, 0, 2), numbers(rng, 2, 1, 3)
        n, c = rng.randint(1, 2), rng.randint(1, 3)
        windows = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(size, padding, dilation, kernel, stride)]
        if min(windows) < 1:
            return False
        if rng.random() < 0.5:
            return table.add("UNFOLD", 2, lambda x: F.unfold(x, kernel, dilation, padding, stride), [[n, c] + size], kernel, stride,
                             padding, dilation)
        columns = [n, c * kernel[0] * kernel[1], windows[0] * windows[1]]
        return table.add("FOLD", 2, lambda x: F.fold(x, size, kernel, dilation, padding, stride), [columns], kernel, stride, padding,
                         dilation, size)

    table.add_many(60, one_interpolation)
    table.add_many(20, one_unfold)
    table.add("PIXEL_SHUFFLE", 2, lambda x: F.pixel_shuffle(x, 2), [[2, 8, 2, 3]], numbers=(2, 0))
    table.add("PIXEL_SHUFFLE", 2, lambda x: F.pixel_shuffle(x, 3), [[1, 9, 2, 1]], numbers=(3, 0))
    table.add("PIXEL_UNSHUFFLE", 2, lambda x: F.pixel_unshuffle(x, 2), [[2, 2, 4, 6]], numbers=(2, 0))
    table.add("PIXEL_UNSHUFFLE", 2, lambda x: F.pixel_unshuffle(x, 3), [[1, 1, 3, 9]], numbers=(3, 0))


def main():
    rng = random.Random(SEED)
    table = Table()
    convolutions(table, rng)
    pools(table, rng)
    images(table, rng)
    version = torch.__version__.split("+")[0]
    text = f"// Written by window_tables.py with PyTorch {version}. Rows: window_test.c.\n" + "\n".join(table.rows) + "\n"
    pathlib.Path(__file__).with_name("window_tables.inc").write_text(text)
    print(len(table.rows), "rows")


main()
