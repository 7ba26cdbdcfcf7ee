"""Fourier transforms for compare.py, against PyTorch's; frequencies against NumPy's. Lines as in operations.py.

Pairs are the last axis, of size 2, and other axes are counted without it; PyTorch sees the complex numbers that they are.
"""

import numpy as np
import torch
from operands import Axes, Long
from operations import ANY, NUMBER, any_shape, axes_of, op, over

NORMS = ["backward", "ortho", "forward"]  # in the order of nd_fft_norm


def size(random, low, high):
    return int(random.integers(low, high + 1))


def to_complex(x):
    x = x if x.is_floating_point() else x.to(torch.float32)
    return torch.view_as_complex(x.contiguous())


def with_pairs(function):
    """Of and to complex numbers where these are."""

    def of(x, *arguments, **options):
        y = function(x, *arguments, **options)
        return torch.view_as_real(y.resolve_conj()) if y.is_complex() else y

    return of


def shapes_of(pairs, low=1):
    """One to three axes; of every size up to 9, so that halves are of one place too."""

    def shapes(random):
        shape = [size(random, low, 9) for _ in range(size(random, 1, 3))]
        return [shape + [2] if pairs else shape]

    return shapes


def along_one(pairs):
    def extra(random, shapes):
        n = len(shapes[0]) - pairs
        return size(random, 1, 12) if random.integers(2) else 0, int(random.integers(-n, n)), size(random, 0, 2)

    return extra


def along_several(pairs):
    """Axes, and sizes for all of them or none; () for all axes."""

    def extra(random, shapes):
        n = len(shapes[0]) - pairs
        axes = [int(a) for a in random.permutation(n)[: size(random, 0, n)]]
        sizes = [size(random, 1, 9) for _ in axes] if axes and random.integers(2) else []
        return sizes, [a - n if random.integers(2) else a for a in axes], size(random, 0, 2)

    return extra


def one_axis(name, function, pairs, low=1):
    def reference(t, e):
        return with_pairs(function)(to_complex(t[0]) if pairs else t[0], n=e[0] or None, dim=e[1], norm=NORMS[e[2]])

    op(name, shapes_of(pairs, low), lambda t, e: [t[0], Long(e[0]), e[1], e[2]], reference, NUMBER, along_one(pairs))


def several_axes(name, function, pairs, low=1):
    def arguments(t, e):
        return [t[0], e[0] or None, e[1] or None, e[2]]

    def reference(t, e):
        x = to_complex(t[0]) if pairs else t[0]
        return with_pairs(function)(x, s=e[0] or None, dim=over(e[1], x.shape), norm=NORMS[e[2]])

    op(name, shapes_of(pairs, low), arguments, reference, NUMBER, along_several(pairs))


one_axis("nd_fft", torch.fft.fft, True)
one_axis("nd_ifft", torch.fft.ifft, True)
one_axis("nd_rfft", torch.fft.rfft, False)
one_axis("nd_irfft", torch.fft.irfft, True, 2)
one_axis("nd_hfft", torch.fft.hfft, True, 2)
one_axis("nd_ihfft", torch.fft.ihfft, False)
several_axes("nd_fftn", torch.fft.fftn, True)
several_axes("nd_ifftn", torch.fft.ifftn, True)
several_axes("nd_rfftn", torch.fft.rfftn, False)
several_axes("nd_irfftn", torch.fft.irfftn, True, 2)
for name in ("fftfreq", "rfftfreq"):
    op(f"nd_{name}", lambda random: [], lambda t, e: [Long(e[0]), e[1], 5], lambda t, e, name=name: torch.tensor(getattr(np.fft, name)(*e)), ["float64"],
       lambda random, shapes: (size(random, 1, 30), float(random.uniform(0.1, 3))), order=0)
for name in ("fftshift", "ifftshift"):
    op(f"nd_{name}", lambda random: [any_shape(random, 1)], lambda t, e: [t[0], Axes(e[0])],
       lambda t, e, name=name: getattr(torch.fft, name)(t[0], over(e[0], t[0].shape)), ANY, axes_of)
