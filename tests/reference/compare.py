"""compare.py COUNT SEED [NAME...]: random calls of operations against PyTorch, values and gradients of first and second order.

Operands have random shapes, dtypes and layouts (operands.LAYOUTS); gradients are asked of the operands as they lie. What an
operation is called with stands in operations.py, and elementwise.py holds elementwise values of all dtypes against NumPy.
"""

import os
import sys
import numpy as np
import torch
import operands
from operands import Axes, call
from operations import OPERATIONS
import fourier  # add their own to OPERATIONS
import linalg
import networks

EPSILON = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}


def values(operation, random, shape, dtype):
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype not in EPSILON:
        return random.integers(1 if dtype.startswith("u") else -4, 5, shape).astype(dtype)
    array = random.uniform(operation.low, operation.high, shape)
    if operation.kinks:
        corners = random.choice([-1.0, 0.0, 0.5, 1.0, 6.0, np.nan, np.inf, -np.inf], shape)
        array = np.where(random.integers(0, 4, shape) == 0, corners, array)
    return np.asarray(array, dtype)


def same(ours, theirs, dtype, what):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, PyTorch {theirs.shape}"
    epsilon = EPSILON.get(dtype, 0)
    np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=epsilon, atol=epsilon, err_msg=what)


class Call:
    def __init__(self, operation, random):
        self.operation, self.random = operation, random
        self.dtype = str(random.choice(operation.dtypes))
        self.shapes = operation.shapes(random)
        self.extra = operation.extra(random, self.shapes) if operation.extra else None
        self.layouts = [str(random.choice(operation.layouts)) for _ in self.shapes]

    def __str__(self):
        return f"{self.operation.name} of {self.dtype} {self.shapes} {self.layouts}, {self.extra}"

    def operands(self):
        self.wanted = []
        ours, theirs = [], []
        differentiable = self.dtype in EPSILON and self.operation.order > 0
        for i, (shape, layout) in enumerate(zip(self.shapes, self.layouts)):
            make = self.operation.index.get(i)
            array = make(self.random, self.shapes, self.extra) if make else values(self.operation, self.random, shape, self.dtype)
            wants = differentiable and not make
            if make and array.dtype == np.float64:  # weights that want no gradient
                array = array.astype(self.dtype)
            x, self.keep = operands.operand(array, layout, self.random, wants)
            y = torch.tensor(operands.array_of(x))  # an expanded operand has other values than the array
            y.requires_grad_(wants)
            if wants:
                self.wanted.append(i)
            ours.append(x)
            theirs.append(y)
        return ours, theirs

    def run(self):
        operation = self.operation
        ours, theirs = self.operands()
        given = operation.arguments(ours, self.extra)
        nd = operation.run(given) if operation.run else call(operation.name, *given)
        other = operation.reference(theirs, self.extra)
        expected = str(other.dtype).replace("torch.", "")
        assert nd.dtype == expected, f"dtype {nd.dtype}, PyTorch {expected}"
        same(operands.array_of(nd), other.detach().numpy(force=True), nd.dtype, "value")
        if not self.wanted or not other.requires_grad:
            assert not nd.requires_grad, "requires a gradient"
            return
        self.gradients(nd, other, [ours[i] for i in self.wanted], [theirs[i] for i in self.wanted])

    def weighted(self, nd, other):
        weights = self.random.uniform(-1, 1, tuple(other.shape)).astype(self.dtype)
        term = call("nd_sum", call("nd_mul", nd, operands.from_numpy(weights)), Axes(), False)
        return term, (other * torch.tensor(weights)).sum()

    def gradients(self, nd, other, ours, theirs):
        if not nd.requires_grad:  # piecewise constant: PyTorch has zeros
            zeros = torch.autograd.grad(self.weighted(nd, other)[1], theirs, allow_unused=True)
            assert all(g is None or not (g != 0).any() for g in zeros)
            return
        total_nd, total = self.weighted(nd, other)
        second = self.operation.order > 1
        grads_nd = operands.grad(total_nd, ours, second)
        grads = torch.autograd.grad(total, theirs, create_graph=second, allow_unused=True)
        for i, (a, b) in enumerate(zip(grads_nd, grads)):
            self.same_gradient(a, b, f"gradient of operand {self.wanted[i]}")
        if not second:
            return
        pairs = [self.weighted(a, b) for a, b in zip(grads_nd, grads) if a is not None and b is not None]
        if not pairs:
            return
        total_nd, total = pairs[0]
        for a, b in pairs[1:]:
            total_nd, total = call("nd_add", total_nd, a), total + b
        if not total_nd.requires_grad or not total.requires_grad:
            if total.requires_grad:
                for g in torch.autograd.grad(total, theirs, allow_unused=True):
                    self.same_gradient(None, g, "second order")
            return
        grads_nd = operands.grad(total_nd, ours)
        grads = torch.autograd.grad(total, theirs, allow_unused=True)
        for i, (a, b) in enumerate(zip(grads_nd, grads)):
            self.same_gradient(a, b, f"second-order gradient of operand {self.wanted[i]}")

    def same_gradient(self, a, b, what):
        if a is None and b is None:
            return
        shape = a.shape if a is not None else tuple(b.shape)
        zero = np.zeros(shape, self.dtype)
        same(operands.array_of(a) if a is not None else zero, b.detach().numpy(force=True) if b is not None else zero, self.dtype, what)


def main():
    count, seed, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    operations = [o for o in OPERATIONS if (not names or o.name in names) and operands.has(o.name)]
    missing = [o.name for o in OPERATIONS if not operands.has(o.name)]
    differences, failed = 0, {}
    for number in range(count):
        random = np.random.default_rng([seed, number])
        attempt = Call(operations[number % len(operations)], random)
        try:
            attempt.run()
        except (AssertionError, operands.Error, RuntimeError, IndexError, TypeError) as error:
            if "grad_input must be contiguous" in str(error):  # PyTorch's nll_loss, of its own
                continue
            differences += 1
            failed[attempt.operation.name] = failed.get(attempt.operation.name, 0) + 1
            if failed[attempt.operation.name] <= int(os.environ.get("ND_REFERENCE_SHOW", "1")):
                print(f"call {number} of seed {seed}: {attempt}\n    {type(error).__name__}: {str(error).strip()}")
        del attempt
    alive = operands.objects_alive()
    print(f"{count} calls of {len(operations)} operations, {differences} differ {failed or ''}, {alive} objects are left")
    if missing:
        print("not in this library:", *missing)
    return 1 if differences or alive or missing else 0


if __name__ == "__main__":
    sys.exit(main())
