"""Linear algebra for compare.py. Lines as in operations.py.

Matrices get a diagonal that dominates, with steps between its elements: then no result is badly conditioned, and singular values and
eigenvalues stay apart. Of decompositions the squares are compared: their columns may point either way.
"""

import numpy as np
import torch
import operands
from operands import call
from operations import FLOAT, op

NORMS = ["fro", "nuc", 2, 1, float("inf")]  # in the order of nd_matrix_norm_kind
LAYOUTS = [layout for layout in operands.LAYOUTS if layout != "expanded"]  # rows alike


def size(random, low, high):
    return int(random.integers(low, high + 1))


def diagonal(shape):
    rows, columns = shape[-2:]
    return np.eye(rows, columns) * 10 * (1 + np.arange(columns))


def regular(x):
    """x, ours or PyTorch's, with that diagonal added."""
    if isinstance(x, torch.Tensor):
        return x + torch.tensor(diagonal(x.shape)).to(x.dtype)
    return call("nd_add", x, operands.from_numpy(diagonal(x.shape).astype(x.dtype)))


def matrices(square, systems=False):
    """[..., m, n], and for systems b: [m] or [..., m, k]."""

    def shapes(random):
        m = size(random, 1, 4)
        n = m if square else size(random, 1, 4)
        batch = [size(random, 1, 2) for _ in range(size(random, 0, 1))]
        if not systems:
            return [[*batch, m, n]]
        b = [m] if random.integers(4) == 0 else [*batch[: size(random, 0, 1)], m, size(random, 1, 3)]
        return [[*batch, m, n], b]

    return shapes


def combined(name, count):
    """Runs a function that writes `count` tensors; their squares behind one another."""

    def run(arguments):
        return joined(list(call(name, *arguments)))

    return run


def joined(parts):
    if isinstance(parts[0], torch.Tensor):
        return torch.cat([(part**2).flatten() for part in parts])
    return call("nd_concat", [call("nd_flatten", call("nd_square", part), 0) for part in parts], 0)


def columns(function):
    """A function of PyTorch's of two matrices, with a vector as a column where the second is one. Batches are written out: PyTorch
    may take a matrix for a batch of vectors."""

    def with_column(a, b):
        matrix = b.unsqueeze(-1) if b.ndim == 1 else b
        batch = torch.broadcast_shapes(a.shape[:-2], matrix.shape[:-2])
        result = function(a, matrix.expand(*batch, *matrix.shape[-2:]))
        return result.squeeze(-1) if b.ndim == 1 else result

    return with_column


def of_matrix(name, function, square, arguments=(), **options):
    op(name, matrices(square), lambda t, e: [regular(t[0]), *arguments], lambda t, e: function(regular(t[0])), FLOAT, layouts=LAYOUTS, **options)


def of_system(name, function, square, arguments=()):
    op(name, matrices(square, True), lambda t, e: [regular(t[0]), t[1], *arguments], lambda t, e: columns(function)(regular(t[0]), t[1]), FLOAT,
       layouts=LAYOUTS)


def symmetric(x):
    return (x + x.mT) / 2


of_system("nd_solve", torch.linalg.solve, True)
of_system("nd_solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), True, (True, False))
of_system("nd_lstsq", lambda a, b: torch.linalg.pinv(a) @ b, False, (-1.0,))
of_matrix("nd_inv", torch.linalg.inv, True)
of_matrix("nd_pinv", torch.linalg.pinv, False, (-1.0,))
of_matrix("nd_det", torch.linalg.det, True)
of_matrix("nd_cholesky", lambda x: torch.linalg.cholesky(symmetric(x)), True)
of_matrix("nd_svdvals", torch.linalg.svdvals, False)
of_matrix("nd_eigvalsh", lambda x: torch.linalg.eigvalsh(symmetric(x)), True)
of_matrix("nd_qr", lambda x: joined(torch.linalg.qr(x)), False, run=combined("nd_qr", 2))
of_matrix("nd_svd", lambda x: joined(torch.linalg.svd(x, full_matrices=False)), False, run=combined("nd_svd", 3))
of_matrix("nd_eigh", lambda x: joined(torch.linalg.eigh(symmetric(x))), True, run=combined("nd_eigh", 2))
of_matrix("nd_slogdet", lambda x: joined(torch.linalg.slogdet(x)), True, run=combined("nd_slogdet", 2))
of_matrix("nd_matrix_rank", torch.linalg.matrix_rank, False, (-1.0,), order=0)
for kind, name in enumerate(NORMS):
    of_matrix("nd_matrix_norm", lambda x, name=name: torch.linalg.matrix_norm(x, name), False, (kind, False))
