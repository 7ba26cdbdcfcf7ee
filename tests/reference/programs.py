"""programs.py COUNT SEED: random programs of all operations, in ndarc and in PyTorch.

A program makes leaves and calls operations of OPERATIONS on parts of what there is already, each below a manager of its own, one of
some that are open, or none. Managers are closed on the way, and handles dropped. At the end all that is left must agree, and so must the
gradients of a sum over it, of leaves and of results on the way, of first and second order. Where compare.py has one operation on leaves,
here histories share operands, and go through managers that are closed when their gradients are computed.
"""

import contextlib
import os
import sys
import numpy as np
import torch
import ndarc
import operands
from operands import Axes, Number, Shape, call
from operations import OPERATIONS
import fourier  # add their own to OPERATIONS
import linalg
import networks

assert fourier and linalg and networks
DTYPE = "float64"
MOST = 300  # elements of an operand

USED = [o for o in OPERATIONS if DTYPE in o.dtypes and o.order > 0 and operands.has(o.name)]


def sum_of(x):
    return call("nd_sum", x, Axes(), False)


class Pair:
    """The same tensor on both sides."""

    def __init__(self, nd, torch_tensor):
        self.nd, self.torch = nd, torch_tensor


class Program:
    def __init__(self, random):
        self.random = random
        self.pairs, self.text, self.managers, self.order = [], [], [], 2
        self.leaves = [self.constant((self.below(6) + 1, self.below(4) + 1)) for _ in range(2 + self.below(2))]
        for leaf in self.leaves:
            leaf.nd.requires_grad = True
            leaf.torch.requires_grad_()
        self.pairs += self.leaves

    def below(self, n):
        return int(self.random.integers(n))

    def constant(self, shape):
        array = self.random.uniform(-1, 1, shape)
        return Pair(operands.from_numpy(array), torch.tensor(array))

    def operand(self, operation, shape):
        """Elements of one of the pairs, each at most once, constants where these are too few, within the range of the operation."""
        at = len(self.pairs) - 1 - self.below(min(5, len(self.pairs))) if self.below(3) else self.below(len(self.pairs))
        source, count = self.pairs[at], int(np.prod(shape, dtype=int))
        taken = self.random.permutation(source.torch.numel())[:count]
        rest = self.constant((count - len(taken),))
        nd = call("nd_take", call("nd_flatten", source.nd, 0), operands.from_numpy(taken), 0)
        nd = call("nd_reshape", call("nd_concat", [nd, rest.nd], 0), Shape(shape))
        other = torch.cat([source.torch.flatten()[torch.tensor(taken)], rest.torch]).reshape(shape)
        # By x / (1 + |x|), which both sides round alike wherever an element stands: what is equal stays so, and where it stands first
        # or last, and who shares a gradient, is not a question of the last bit.
        half, middle = (operation.high - operation.low) / 2, (operation.high + operation.low) / 2
        nd = call("nd_div", nd, call("nd_add_scalar", call("nd_abs", nd), Number(1)))
        nd = call("nd_add_scalar", call("nd_mul_scalar", nd, Number(half)), Number(middle))
        return Pair(nd, other / (other.abs() + 1) * half + middle), at

    def step(self):
        operation = USED[self.below(len(USED))]
        shapes = operation.shapes(self.random)
        extra = operation.extra(self.random, shapes) if operation.extra else None
        if any(np.prod(shape, dtype=int) > MOST for shape in shapes):
            return
        if operation.name == "nd_scatter" and not extra[2]:
            return  # PyTorch has x's own element share an extreme's gradient that it has no part in
        given, sources = [], []
        for i, shape in enumerate(shapes):
            make = operation.index.get(i)
            if make:
                array = make(self.random, shapes, extra)
                pair, at = Pair(operands.from_numpy(array), torch.tensor(array)), "constant"
            else:
                pair, at = self.operand(operation, shape)
            given.append(pair)
            sources.append(at)
        arguments = operation.arguments([pair.nd for pair in given], extra)
        nd = operation.run(arguments) if operation.run else call(operation.name, *arguments)
        other = operation.reference([pair.torch for pair in given], extra)
        if nd.dtype != DTYPE or other.numel() == 0 or not bool(other.isfinite().all()):
            return
        self.order = min(self.order, operation.order)
        self.text.append(f"t{len(self.pairs)} = {operation.name} of {sources} as {shapes}, {extra}")
        self.pairs.append(Pair(nd, other))
        if self.below(4) == 0:  # a handle less; the history stays
            gone = self.below(len(self.pairs))
            if len(self.pairs) > 3 and self.pairs[gone] not in self.leaves:
                self.text.append(f"t{gone} is dropped: those behind move up")
                del self.pairs[gone]

    def block(self):
        """Where a step's results are to go."""
        kind = self.below(4)
        if kind == 0 or (kind == 1 and not self.managers):
            return contextlib.nullcontext()
        if kind == 1:
            return self.below_open(self.managers[self.below(len(self.managers))])
        manager = ndarc.manager(parent=self.managers[-1] if self.managers and self.below(2) else None)
        if kind == 2:
            self.managers.append(manager)
            return self.below_open(manager)
        return manager  # closed behind the step

    @staticmethod
    @contextlib.contextmanager
    def below_open(manager):
        with ndarc.manager(parent=manager):  # closed at the end: what is held moves up
            yield

    def run(self):
        for _ in range(3 + self.below(10)):
            with self.block():
                self.step()
            if self.managers and self.below(5) == 0:
                self.text.append("a manager is closed")
                at = self.below(len(self.managers))
                self.managers[at].close()
                del self.managers[at:]  # those behind may be below it
        for i, pair in enumerate(self.pairs):
            self.same(pair.nd, pair.torch.detach(), f"t{i}")
        self.gradients()
        for manager in self.managers:
            manager.close()

    def weighted(self, pairs):
        total_nd, total = None, None
        for pair in pairs:
            weights = self.constant(tuple(pair.torch.shape))
            term_nd, term = sum_of(call("nd_mul", pair.nd, weights.nd)), (pair.torch * weights.torch).sum()
            total_nd = call("nd_add", total_nd, term_nd) if total_nd is not None else term_nd
            total = total + term if total is not None else term
        return total_nd, total

    def gradients(self):
        wanted = self.leaves + [p for p in self.pairs if p not in self.leaves and p.torch.requires_grad and p.nd.requires_grad and self.below(3) == 0]
        total_nd, total = self.weighted([pair for pair in self.pairs if pair.torch.isfinite().all()])
        second = self.order > 1
        ours = operands.grad(total_nd, [pair.nd for pair in wanted], second)
        theirs = torch.autograd.grad(total, [pair.torch for pair in wanted], create_graph=second, allow_unused=True)
        for i, (a, b) in enumerate(zip(ours, theirs)):
            self.same(a, b, f"gradient {i}")
        pairs = [Pair(a, b) for a, b in zip(ours, theirs) if a is not None and b is not None and a.requires_grad and b.requires_grad]
        if not second or not pairs:
            return
        # Of leaves alone: what a rule's own gradient has with a result on the way depends on how the rule is written.
        total_nd, total = self.weighted(pairs)
        ours = operands.grad(total_nd, [pair.nd for pair in self.leaves])
        theirs = torch.autograd.grad(total, [pair.torch for pair in self.leaves], allow_unused=True)
        for i, (a, b) in enumerate(zip(ours, theirs)):
            self.same(a, b, f"gradient {i} of second order")

    @staticmethod
    def same(a, b, what):
        if a is None and b is None:
            return
        a = operands.array_of(a) if a is not None else np.zeros(tuple(b.shape))
        b = b.detach().numpy() if b is not None else np.zeros(a.shape)
        assert a.shape == b.shape, f"{what}: shape {a.shape}, PyTorch {b.shape}"
        if np.isfinite(b).all():
            largest = np.abs(b).max(initial=0)
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8 + 1e-8 * largest, err_msg=what)


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    differences = cycles = 0
    for number in range(count):
        program = Program(np.random.default_rng([seed, number]))
        try:
            program.run()
        except (AssertionError, operands.Error, RuntimeError, IndexError, TypeError) as error:
            differences += 1
            if differences <= int(os.environ.get("ND_REFERENCE_SHOW", "3")):
                print(f"program {number} of seed {seed}:", *program.text, f"{type(error).__name__}: {error}", sep="\n    ")
        text = program.text
        del program
        if operands.objects_alive():
            cycles += 1
            call("nd_gc_collect", None)
        if operands.objects_alive():
            differences += 1
            print(f"program {number} of seed {seed}: {operands.objects_alive()} objects are left", *text, sep="\n    ")
            break
    print(f"{count} programs of {len(USED)} operations, {differences} differ, {cycles} left something to the collector")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
