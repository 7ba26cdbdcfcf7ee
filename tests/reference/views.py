"""views.py COUNT SEED: random programs of views, writes through them, and gradients, in ndarc and in PyTorch.

A program makes leaves, tensors computed from them and tensors that are not, takes views of views of them, writes some in place
inside and outside of no_grad, and at the end asks for the gradients of a sum over everything, of first and second order. Every
value and gradient must agree, and what PyTorch refuses must be refused.
"""

import os
import sys
import numpy as np
import torch
import operands
from operands import Axes, Long, Number, Shape, call


class Pair:
    """The same tensor on both sides."""

    def __init__(self, nd, torch_tensor):
        self.nd, self.torch = nd, torch_tensor


class Program:
    def __init__(self, random):
        self.random = random
        self.leaves, self.all, self.text = [], [], []

    def below(self, n):
        return int(self.random.integers(n))

    def values(self, shape):
        return self.random.uniform(0.5, 2.0, shape) * self.random.choice([-1.0, 1.0], shape)

    def note(self, text):
        self.text.append(text)

    def shape(self):
        return [self.below(4) + (self.below(8) > 0) for _ in range(self.below(4))]

    def make(self, requires_grad):
        array = self.values(self.shape())
        nd, other = operands.from_numpy(array), torch.tensor(array)
        if requires_grad:
            call("nd_set_requires_grad", nd, True)
            other.requires_grad_(True)
        pair = Pair(nd, other)
        self.all.append(pair)
        if requires_grad:
            self.leaves.append(pair)
        self.note(f"t{len(self.all) - 1} = {'leaf' if requires_grad else 'constant'} {array.shape}")
        return pair

    def add(self, pair, text):
        self.all.append(pair)
        self.note(f"t{len(self.all) - 1} = {text}")

    def pick(self):
        # Late ones are views and views of views.
        n = len(self.all)
        return self.below(n) if self.below(2) else max(0, n - 1 - self.below(4))

    def view(self):
        at = self.pick()
        x = self.all[at]
        dims = x.torch.dim()
        kind = self.below(7)
        if kind == 0 and dims:
            axis = self.below(dims)
            size = x.torch.shape[axis]
            start, step = self.below(size + 1), 1 + self.below(3)
            stop = start + self.below(size - start + 1)
            place = [slice(None)] * dims
            place[axis] = slice(start, stop, step)
            pair = Pair(call("nd_slice", x.nd, Long(start), Long(stop), Long(step), axis), x.torch[tuple(place)])
            self.add(pair, f"slice(t{at}, {start}, {stop}, {step}, {axis})")
        elif kind == 1 and dims:
            axis = self.below(dims)
            if x.torch.shape[axis]:
                index = self.below(x.torch.shape[axis])
                self.add(Pair(call("nd_select", x.nd, Long(index), axis), x.torch.select(axis, index)), f"select(t{at}, {index}, {axis})")
        elif kind == 2 and dims:
            a, b = self.below(dims), self.below(dims)
            self.add(Pair(call("nd_transpose", x.nd, a, b), x.torch.transpose(a, b)), f"transpose(t{at}, {a}, {b})")
        elif kind == 3:
            shape = [x.torch.numel()] if self.below(2) else [*x.torch.shape, 1]
            # Where strides leave no view both copy.
            nd = call("nd_reshape", x.nd, Shape(shape))
            other = x.torch.reshape(shape)
            shares = call("nd_is_view_of", nd, x.nd)
            if x.torch.numel() == 0 or shares == (other.untyped_storage().data_ptr() == x.torch.untyped_storage().data_ptr()):
                self.add(Pair(nd, other), f"reshape(t{at}, {shape})")
        elif kind == 4:
            axis = self.below(dims + 1)
            if dims < 5:
                self.add(Pair(call("nd_unsqueeze", x.nd, axis), x.torch.unsqueeze(axis)), f"unsqueeze(t{at}, {axis})")
        elif kind == 5 and dims < 5:
            shape = [2, *x.torch.shape]
            self.add(Pair(call("nd_expand", x.nd, Shape(shape)), x.torch.expand(shape)), f"expand(t{at}, {shape})")
        elif kind == 6 and self.below(3) == 0:
            self.add(Pair(call("nd_detach", x.nd), x.torch.detach()), f"detach(t{at})")

    def compute(self):
        at = self.pick()
        x = self.all[at]
        kind = self.below(3)
        if kind == 0:
            self.add(Pair(call("nd_sin", x.nd), x.torch.sin()), f"sin(t{at})")
        elif kind == 1:
            self.add(Pair(call("nd_mul_scalar", x.nd, Number(0.5)), x.torch * 0.5), f"t{at} * 0.5")
        else:
            other = self.pick()
            y = self.all[other]
            try:
                shape = torch.broadcast_shapes(x.torch.shape, y.torch.shape)
            except RuntimeError:
                return
            if len(shape) < 5:
                self.add(Pair(call("nd_mul", x.nd, y.nd), x.torch * y.torch), f"t{at} * t{other}")

    def write(self):
        at = self.pick()
        x = self.all[at]
        kind = self.below(9)
        if kind < 5:
            names = ["nd_add_", "nd_sub_", "nd_mul_", "nd_div_", "nd_copy_"]
            torches = [torch.Tensor.add_, torch.Tensor.sub_, torch.Tensor.mul_, torch.Tensor.div_, torch.Tensor.copy_]
            if self.below(2):
                other = self.pick()
                y = self.all[other]
            else:
                other, array = None, self.values(x.torch.shape)
                y = Pair(operands.from_numpy(array), torch.tensor(array))
            if tuple(torch.broadcast_shapes(x.torch.shape, y.torch.shape)) != tuple(x.torch.shape) if self._joins(x, y) else True:
                return
            if kind == 4 and other == at:
                return  # a copy of a tensor to itself is no write for ndarc, as one of another handle is
            if kind == 3 and bool((y.torch == 0).any()):
                return
            self.both(
                f"{names[kind]}(t{at}, {'constant' if other is None else f't{other}'})",
                lambda: call(names[kind], x.nd, y.nd),
                lambda: torches[kind](x.torch, y.torch),
            )
        elif kind == 5:
            self.both(f"mul_scalar_(t{at})", lambda: call("nd_mul_scalar_", x.nd, Number(1.5)), lambda: x.torch.mul_(1.5))
        elif kind == 6:
            self.both(f"fill_(t{at})", lambda: call("nd_fill_", x.nd, Number(0.75)), lambda: x.torch.fill_(0.75))
        elif kind == 7:
            other = self.pick()
            y = self.all[other]
            if not self._joins(x, y) or torch.broadcast_shapes(x.torch.shape, y.torch.shape) != x.torch.shape:
                return
            self.both(
                f"add_scaled_(t{at}, t{other})",
                lambda: call("nd_add_scaled_", x.nd, y.nd, Number(-0.5)),
                lambda: x.torch.add_(y.torch, alpha=-0.5),
            )
        else:
            mask = self.random.integers(0, 2, tuple(x.torch.shape)).astype(bool)
            self.both(
                f"masked_fill_(t{at})",
                lambda: call("nd_masked_fill_", x.nd, operands.from_numpy(mask), Number(0.25)),
                lambda: x.torch.masked_fill_(torch.tensor(mask), 0.25),
            )

    @staticmethod
    def _joins(x, y):
        try:
            torch.broadcast_shapes(x.torch.shape, y.torch.shape)
            return True
        except RuntimeError:
            return False

    def both(self, text, ours, theirs):
        self.note(text)
        inside = self.below(6) == 0
        failure = refusal = None
        if inside:
            self.note("  inside no_grad")
        for pair in self.all:
            pair.torch.grad_fn  # brings a view's history up to date, which some of PyTorch's checks forget
        try:
            with torch.set_grad_enabled(not inside):
                theirs()
        except RuntimeError as error:
            refusal = str(error)
        try:
            if inside:
                with operands.no_grad():
                    ours()
            else:
                ours()
        except operands.Error as error:
            failure = str(error)
        if failure and not refusal:
            # ndarc says no to operands that partly overlap; PyTorch computes something.
            if "share part of their memory" in failure or "share memory with each other" in failure:
                raise Stop
            raise AssertionError(f"refused: {failure}")
        if refusal and not failure and "single memory location" in refusal:
            raise Stop  # the operands are the same window, which is no danger
        if refusal and not failure:
            raise AssertionError(f"not refused; PyTorch: {refusal}")

    def run(self):
        for _ in range(1 + self.below(2)):
            self.make(True)
        self.make(False)
        for _ in range(4 + self.below(12)):
            self.random.choice([self.view, self.view, self.write, self.compute])()
        self.check_values()
        self.check_gradients()

    def check_values(self):
        for i, pair in enumerate(self.all):
            np.testing.assert_allclose(operands.array_of(pair.nd), pair.torch.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=f"t{i}")
            # What was overwritten everywhere by constants has no history in ndarc, and zeros for gradients in PyTorch.
            assert pair.torch.requires_grad or not pair.nd.requires_grad, f"t{i} requires a gradient"

    def check_gradients(self):
        """Of a sum over everything, times random numbers, squared."""
        total_nd, total = None, None
        for pair in self.all:
            weights = self.values(tuple(pair.torch.shape))
            term = (pair.torch * torch.tensor(weights)).square().sum()
            nd = call("nd_sum", call("nd_square", call("nd_mul", pair.nd, operands.from_numpy(weights))), Axes(), False)
            total = term if total is None else total + term
            total_nd = nd if total_nd is None else call("nd_add", total_nd, nd)
        if not total.requires_grad:
            return
        if not total_nd.requires_grad:
            total_nd = call("nd_add", total_nd, self.zero_of_leaves())
        wanted = [p for p in self.leaves if p.torch.requires_grad]
        if self.below(2):  # of views and results as well
            wanted += [p for p in self.all if p.nd.requires_grad and not p.torch.is_leaf and not self.shows_a_leaf(p.torch)]
        refusal = failure = None
        try:
            theirs = torch.autograd.grad(total, [p.torch for p in wanted], create_graph=True, allow_unused=True)
        except RuntimeError as error:
            refusal = str(error)
        try:
            ours = operands.grad(total_nd, [p.nd for p in wanted], True)
        except operands.Error as error:
            failure = str(error)
        if refusal or failure:
            # ndarc saves operands that PyTorch knows it will not need.
            if not refusal and "was changed in place" in failure:
                raise Stop
            if refusal and not failure and "modified by an inplace" in refusal:
                # x /= x, of which ndarc keeps the value that x had; and paths that a write of all of a tensor has cut.
                raise Stop
            assert refusal and failure, f"PyTorch: {refusal}\nndarc: {failure}"
            raise Stop
        self.compare(ours, theirs, "first order")
        weights = [self.values(tuple(p.torch.shape)) for p in wanted]
        second = sum((g * torch.tensor(w)).sum() for g, w in zip(theirs, weights) if g is not None)
        if not isinstance(second, torch.Tensor) or not second.requires_grad:
            return
        second_nd = None
        for g, w in zip(ours, weights):
            if g is not None:
                term = call("nd_sum", call("nd_mul", g, operands.from_numpy(w)), Axes(), False)
                second_nd = term if second_nd is None else call("nd_add", second_nd, term)
        try:
            theirs = torch.autograd.grad(second, [p.torch for p in wanted], allow_unused=True)
        except RuntimeError:
            raise Stop
        try:
            if not second_nd.requires_grad:
                second_nd = call("nd_add", second_nd, self.zero_of_leaves())
            ours = operands.grad(second_nd, [p.nd for p in wanted])
        except operands.Error as error:
            if "was changed in place" in str(error):
                raise Stop
            raise
        self.compare(ours, theirs, "second order")

    @staticmethod
    def shows_a_leaf(x):
        """A write to the leaf inside no_grad makes such a view another variable for PyTorch, and not for ndarc."""
        return x._base is not None and x._base.is_leaf

    def zero_of_leaves(self):
        zero = operands.from_numpy(np.zeros(()))
        for leaf in self.leaves:
            term = call("nd_sum", call("nd_mul_scalar", leaf.nd, Number(0.0)), Axes(), False)
            zero = call("nd_add", zero, term)
        return zero

    def compare(self, ours, theirs, what):
        for i, (a, b) in enumerate(zip(ours, theirs)):
            zero = np.zeros(a.shape if a is not None else tuple(b.shape) if b is not None else ())
            np.testing.assert_allclose(
                operands.array_of(a) if a is not None else zero,
                b.detach().numpy() if b is not None else zero,
                rtol=1e-7,
                atol=1e-9,
                err_msg=f"gradient {i}, {what}",
            )


class Stop(Exception):
    """The program ends here, as it should."""




def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    whole = differences = cycles = 0
    for number in range(count):
        program = Program(np.random.default_rng([seed, number]))
        try:
            program.run()
            whole += 1
        except Stop:
            pass
        except (AssertionError, operands.Error) as error:
            differences += 1
            if differences <= int(os.environ.get("ND_REFERENCE_SHOW", "3")):
                print(f"program {number} of seed {seed}:", *program.text, str(error), sep="\n    ")
        text = program.text
        del program
        if operands.objects_alive():
            # x *= c * x: the history of x has saved x as it was. The collector finds it.
            cycles += 1
            call("nd_gc_collect", None)
        if operands.objects_alive():
            print(f"program {number} of seed {seed}: {operands.objects_alive()} objects are left", *text, sep="\n    ")
            return 1
    print(f"{count} programs, {whole} to the end, {cycles} with cycles, {differences} differ")
    return 1 if differences or whole < count // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
