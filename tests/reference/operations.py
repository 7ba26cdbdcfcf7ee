"""The operations that compare.py calls, a line each.

    op(name, operands, arguments, reference, dtypes, ...)

name        the function of ndarc
operands    shapes(random) -> list of shapes of the tensor operands
arguments   (tensors, extra) -> the arguments of the call, as operands.py converts them
reference   (torch tensors, extra) -> PyTorch's result
run         (arguments) -> the result, of functions that return a status
dtypes      of the operands
extra       (random, shapes) -> what else the call needs: axes, numbers; handed to both sides
low, high   range of the values; kinks: values on corners as well
order       of the gradients that are compared: 2, 1, or 0
"""

import numpy as np
import torch
import operands
from operands import Axes, Long, Number, PaddingOf, Shape
from table import ROWS

OPERATIONS = []
FLOAT = ["float32", "float64"]
NUMBER = FLOAT + ["uint8", "int32", "int64"]  # int8 and int16 once elementwise loops have them
ANY = NUMBER + ["bool"]


class Operation:
    def __init__(self, name, shapes, arguments, reference, dtypes, extra=None, low=-2.0, high=2.0, order=2, kinks=False, index=None, run=None,
                 layouts=operands.LAYOUTS):
        self.name, self.shapes, self.arguments, self.reference, self.dtypes = name, shapes, arguments, reference, dtypes
        self.extra, self.low, self.high, self.order, self.kinks = extra, low, high, order, kinks
        self.layouts = layouts
        self.run = run  # of (arguments), where the function returns a status and not a tensor
        self.index = index or {}  # operands that are no elements: position -> (random, shapes, extra) -> array


def op(*arguments, **options):
    OPERATIONS.append(Operation(*arguments, **options))


def any_shape(random, at_least=0, at_most=4):
    """Sizes 0 to 4; 1 often."""
    ndim = int(random.integers(at_least, at_most + 1))
    return [int(random.choice([0, 1, 1, 2, 3, 4], p=[0.05, 0.2, 0.15, 0.2, 0.2, 0.2])) for _ in range(ndim)]


def full_shape(random, at_least=0):
    return [max(1, size) for size in any_shape(random, at_least)]


def one(random):
    return [any_shape(random)]


def one_full(random):
    return [full_shape(random, 1)]


def one_with_axes(random):
    return [any_shape(random, 1)]


def broadcast(random, count=2):
    """Shapes that broadcast to one."""
    whole = any_shape(random)
    shapes = []
    for _ in range(count):
        shape = [1 if random.integers(4) == 0 else size for size in whole]
        shapes.append(shape[int(random.integers(len(whole) + 1)) :] if random.integers(3) == 0 else shape)
    return shapes


def three(random):
    return broadcast(random, 3)


def plain(tensors, _):
    return tensors


def number(random, _):
    return float(np.round(random.uniform(-2, 2), 2))


def axis_of(random, shapes):
    n = len(shapes[0])
    return int(random.integers(-n, n))


def axes_of(random, shapes):
    n = len(shapes[0])
    count = int(random.integers(0, n + 1))
    axes = [int(a) for a in random.permutation(n)[:count]]
    return [a - n if random.integers(2) else a for a in axes], bool(random.integers(2))


def over(axes, shapes):
    return axes or list(range(len(shapes)))


def unary(name, function, dtypes=FLOAT, **options):
    op(name, one, plain, lambda t, _: function(t[0]), dtypes, **options)


def binary(name, function, dtypes=FLOAT, **options):
    op(name, broadcast, plain, lambda t, _: function(*t), dtypes, **options)


def with_number(name, function, dtypes=FLOAT, extra=number, **options):
    op(name, one, lambda t, e: [t[0], Number(e)], lambda t, e: function(t[0], e), dtypes, extra, **options)


def reduction(name, function, shapes=one, dtypes=FLOAT, **options):
    op(name, shapes, lambda t, e: [t[0], Axes(e[0]), e[1]], lambda t, e: function(t[0], over(e[0], t[0].shape), e[1]), dtypes, axes_of, **options)


# elementwise: the rows of the table, within the domain on which their gradients are defined
WITH_CORNERS = "abs relu floor ceil round trunc isnan isinf isfinite maximum minimum equal not_equal less less_equal greater greater_equal clip".split()  # hardtanh, relu6: of NaN 0, PyTorch 1
FEWER_DTYPES = {"hardsigmoid": ["float32"]}  # PyTorch rounds its sixth to f32 in f64 too
FIRST_ORDER = ("hardsigmoid",)  # PyTorch has no second order
ORDER_0 = ("sign",)  # of NaN: NaN as in NumPy, PyTorch 0
OF_TABLE = {"ANY": ANY, "NUMBER": NUMBER, "FLOAT": FLOAT, "INTEGER": ["uint8", "int32", "int64"], "BITS": ["uint8", "int32", "int64", "bool"], "BOOL": ["bool"]}
# Of these PyTorch has no gradient in the dtype, or another function of integers: elementwise.py holds their values against NumPy.
VALUES_ELSEWHERE = ("nextafter", "floor_divide", "remainder", "round", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "pow", "pow_scalar", "signbit", "copysign", "clip")


def row_operation(row):
    # The corners are random numbers among the others; the rest of the domain stands in the table.
    low, high = (max(d[0] for d in row.domains), min(d[1] for d in row.domains)) if row.domains else (-2.0, 2.0)
    of_floats = row.name in VALUES_ELSEWHERE or row.form in ("XP", "XPQ")
    dtypes = FEWER_DTYPES.get(row.name, FLOAT if of_floats else OF_TABLE[row.types])
    order = 1 if row.name in FIRST_ORDER else 2 if row.differentiable == "YES" else 0
    options = {"low": low, "high": high, "order": order, "kinks": row.name in WITH_CORNERS}
    shifts = row.name.endswith("_shift")
    if shifts:
        options["index"] = {1: lambda random, shapes, _: random.integers(0, 7, shapes[1]).astype("int64")}
        dtypes = ["int64"]
    op("nd_" + row.name, broadcast if row.inputs == 2 else one,
       lambda t, e: [*t, *(Number(n) for n in e)],
       lambda t, e: row.torch(t, e), dtypes,
       lambda random, _: row.numbers(random, False), **options)


for row in ROWS:
    row_operation(row)
op("nd_where", three, plain, lambda t, _: torch.where(t[0], t[1], t[2]), FLOAT, index={0: lambda random, shapes, _: random.integers(0, 2, shapes[0]).astype(bool)})
op("nd_masked_fill", broadcast, lambda t, e: [t[0], t[1], Number(1.5)], lambda t, e: t[0].masked_fill(t[1], 1.5), FLOAT,
   index={1: lambda random, shapes, _: random.integers(0, 2, shapes[0][len(shapes[0]):] if len(shapes[1]) > len(shapes[0]) else shapes[0]).astype(bool)})

# reductions
def product(t, axes, keep):
    for axis in sorted((a % max(1, t.ndim) for a in axes), reverse=True):
        t = torch.prod(t, axis, keep)
    return t


reduction("nd_sum", lambda t, axes, keep: torch.sum(t, axes, keep) if axes else torch.sum(t), dtypes=FLOAT)
reduction("nd_mean", lambda t, axes, keep: torch.mean(t, axes, keep) if axes else torch.mean(t), one_full)
reduction("nd_max", lambda t, axes, keep: torch.amax(t, axes, keep), one_full, order=1)
reduction("nd_min", lambda t, axes, keep: torch.amin(t, axes, keep), one_full, order=1)
op("nd_var", one_full, lambda t, e: [t[0], Axes(e[0]), 0.0, e[1]], lambda t, e: torch.var(t[0], over(e[0], t[0].shape), correction=0, keepdim=e[1]), FLOAT, axes_of)
for correction in (0, 1):
    op("nd_std", lambda random: [[max(2, size) for size in any_shape(random, 1)]], lambda t, e, c=correction: [t[0], Axes(e[0]), float(c), e[1]],
       lambda t, e, c=correction: torch.std(t[0], over(e[0], t[0].shape), correction=c, keepdim=e[1]), FLOAT,
       lambda random, shapes: (axes_of(random, shapes)[0] or [0], bool(random.integers(2))), order=1,
       layouts=["contiguous", "transposed", "sliced", "odd"])  # of equal numbers the gradient is 0, PyTorch's that of its rounding
reduction("nd_prod", lambda t, axes, keep: product(t, axes, keep))
TRUTHS = [dtype for dtype in ANY if dtype != "uint8"]  # of which PyTorch gives uint8, not bool
reduction("nd_any", lambda t, axes, keep: torch.any(t, axes, keep), dtypes=TRUTHS, order=0)
reduction("nd_all", lambda t, axes, keep: torch.all(t, axes, keep), dtypes=TRUTHS, order=0)
op("nd_count_nonzero", one, lambda t, e: [t[0], Axes(e[0]), False], lambda t, e: torch.count_nonzero(t[0], over(e[0], t[0].shape)), ANY, axes_of, order=0)
reduction("nd_logsumexp", lambda t, axes, keep: torch.logsumexp(t, axes, keep) if axes else t.clone(), one_full)
op("nd_norm", one_full, lambda t, e: [t[0], e[1], Axes(e[0][0]), e[0][1]],
   lambda t, e: torch.linalg.vector_norm(t[0], e[1], over(e[0][0], t[0].shape), e[0][1]), FLOAT,
   lambda random, shapes: (axes_of(random, shapes), float(random.choice([1.0, 2.0, 3.0, np.inf, -np.inf, 0.0]))), low=0.2, order=1)
op("nd_cumsum", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.cumsum(t[0], e), FLOAT + ["int32", "int64"], axis_of)
op("nd_cumprod", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.cumprod(t[0], e), FLOAT + ["int32", "int64"], axis_of)
op("nd_cummax", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.cummax(t[0], e)[0], NUMBER, axis_of)
op("nd_cummin", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.cummin(t[0], e)[0], NUMBER, axis_of)
op("nd_sum_to", one, lambda t, e: [t[0], Shape(e)], lambda t, e: t[0].sum_to_size(e), FLOAT,
   lambda random, shapes: [1 if random.integers(2) else size for size in shapes[0]])
op("nd_argmax", one_full, lambda t, e: [t[0], e, False], lambda t, e: torch.argmax(t[0], e), FLOAT, axis_of, order=0)
op("nd_argmin", one_full, lambda t, e: [t[0], e, True], lambda t, e: torch.argmin(t[0], e, True), FLOAT, axis_of, order=0)
op("nd_sort", one_with_axes, lambda t, e: [t[0], e[0], e[1]], lambda t, e: torch.sort(t[0], dim=e[0], descending=e[1], stable=True)[0], ANY,
   lambda random, shapes: (axis_of(random, shapes), bool(random.integers(2))))
op("nd_argsort", one_with_axes, lambda t, e: [t[0], e[0], e[1]], lambda t, e: torch.sort(t[0], dim=e[0], descending=e[1], stable=True)[1],
   ANY, lambda random, shapes: (axis_of(random, shapes), bool(random.integers(2))), order=0)
op("nd_nonzero", one, plain, lambda t, _: torch.nonzero(t[0]), ANY, order=0)
op("nd_outer", lambda random: [[int(random.integers(1, 5))], [int(random.integers(1, 5))]], plain, lambda t, _: torch.outer(*t), NUMBER)
op("nd_softmax", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.softmax(t[0], e), FLOAT, axis_of)
op("nd_log_softmax", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.log_softmax(t[0], e), FLOAT, axis_of)
op("nd_masked_softmax", lambda random: [shape := full_shape(random, 1), shape[int(random.integers(len(shape))):]], lambda t, e: [t[0], t[1], e],
   lambda t, e: torch.where(t[1], torch.softmax(torch.where(t[1], t[0], -1e30), e), 0.0), FLOAT, axis_of,
   index={1: lambda random, shapes, _: random.integers(0, 2, shapes[1]).astype(bool)})
op("nd_mse_loss", lambda random: [full_shape(random)] * 2, plain, lambda t, _: torch.nn.functional.mse_loss(*t), FLOAT)


# products
def factors(random):
    m, k, n = (int(random.integers(1, 5)) for _ in range(3))
    batches = broadcast(random)
    kind = int(random.integers(5))
    if kind == 0:
        return [[k], [k]]
    if kind == 1:
        return [[m, k], [k]]
    if kind == 2:
        return [[k], [k, n]]
    a, b = ([size for size in batch[-2:]] for batch in batches)
    return [a + [m, k], b + [k, n]]


def layer(random):
    k, n = int(random.integers(1, 5)), int(random.integers(1, 5))
    return [full_shape(random)[:3] + [k], [n, k], [n]]


op("nd_matmul", factors, plain, lambda t, _: torch.matmul(*t), FLOAT)
op("nd_linear", layer, plain, lambda t, _: torch.nn.functional.linear(*t), FLOAT)
ACTIVATIONS = [torch.relu, torch.nn.functional.gelu, torch.sigmoid, torch.tanh]
op("nd_linear_activation", layer, lambda t, e: [*t, e], lambda t, e: ACTIVATIONS[e](torch.nn.functional.linear(*t)), FLOAT,
   lambda random, shapes: int(random.integers(len(ACTIVATIONS))))



# products of integers of 8 bits, whose dtypes are chosen for each; zero points for all of an operand, or its rows and columns
def integer_factors(random):
    a, b = factors(random)
    return [a, b, [a[-2]] if len(a) > 1 and random.integers(2) else [], [b[-1]] if len(b) > 1 and random.integers(2) else []]


def some_bytes(operand):
    def made(random, shapes, dtypes):
        limits = np.iinfo(dtypes[operand % 2])
        return random.choice([limits.min, limits.max, *range(limits.min, limits.max)], shapes[operand]).astype(dtypes[operand % 2])

    return made


def integer_product(t, extra):
    a, b, a_zero, b_zero = (x.long() if extra[i] else torch.tensor(0) for i, x in enumerate(t))
    return torch.matmul(a - (a_zero[:, None] if a_zero.ndim else a_zero), b - b_zero).int()


op("nd_matmul_integer", integer_factors, lambda t, e: [x if e[i] else None for i, x in enumerate(t)], integer_product, ["int8"],
   lambda random, shapes: [*(str(random.choice(["int8", "uint8"])) for _ in range(2)), *(bool(random.integers(2)) for _ in range(2))], order=0,
   index={operand: some_bytes(operand) for operand in range(4)})


# indexing, views, joining
def indices(random, shapes, axis):
    return random.integers(0, shapes[0][axis], shapes[1])


op("nd_take", lambda random: [full_shape(random, 1), [int(random.integers(1, 5))]], lambda t, e: [t[0], t[1], e],
   lambda t, e: torch.index_select(t[0], e, t[1]), FLOAT, axis_of, index={1: indices})
op("nd_gather", lambda random: [full_shape(random, 1)] * 2, lambda t, e: [t[0], t[1], e],
   lambda t, e: torch.gather(t[0], e, t[1]), FLOAT, axis_of, index={1: indices})
op("nd_scatter_add", lambda random: [full_shape(random, 1)] * 3, lambda t, e: [t[0], t[1], t[2], e],
   lambda t, e: torch.scatter_add(t[0], e, t[1], t[2]), FLOAT, axis_of, index={1: indices})
SCATTERED = ["sum", "prod", "amin", "amax", "mean"]  # nd_scatter_reduction
op("nd_scatter", lambda random: [full_shape(random, 1)] * 3, lambda t, e: [t[0], t[1], t[2], e[0], e[1], e[2]],
   lambda t, e: torch.scatter_reduce(t[0], e[0], t[1], t[2], SCATTERED[e[1]], include_self=e[2]), FLOAT,
   lambda random, shapes: (axis_of(random, shapes), int(random.integers(len(SCATTERED))), bool(random.integers(2))),
   index={1: lambda random, shapes, e: random.integers(0, shapes[0][e[0]], shapes[1])})
op("nd_masked_select", lambda random: [any_shape(random)] * 2, plain, lambda t, _: torch.masked_select(*t), FLOAT,
   index={1: lambda random, shapes, _: random.integers(0, 2, shapes[0]).astype(bool)})
op("nd_transpose", one_with_axes, lambda t, e: [t[0], e[0], e[1]], lambda t, e: torch.transpose(t[0], *e), ANY,
   lambda random, shapes: (axis_of(random, shapes), axis_of(random, shapes)))
op("nd_flatten", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.flatten(t[0], e), ANY, axis_of)
op("nd_reshape", one, lambda t, e: [t[0], Shape(e)], lambda t, e: torch.reshape(t[0], e), ANY,
   lambda random, shapes: [int(np.prod(shapes[0], dtype=np.int64)), 1])
op("nd_unsqueeze", one, lambda t, e: [t[0], e], lambda t, e: torch.unsqueeze(t[0], e), ANY,
   lambda random, shapes: int(random.integers(len(shapes[0]) + 1)))
op("nd_slice", one_with_axes, lambda t, e: [t[0], Long(e[1]), Long(e[2]), Long(e[3]), e[0]],
   lambda t, e: t[0].movedim(e[0], 0)[e[1] : e[2] : e[3]].movedim(0, e[0]), ANY,
   lambda random, shapes: (axis_of(random, shapes), *(int(random.integers(-5, 6)) for _ in range(2)), int(random.integers(1, 4))))
op("nd_slice", one_with_axes, lambda t, e: [t[0], Long(e[1]), Long(e[2]), Long(-e[3]), e[0]],
   lambda t, e: t[0].movedim(e[0], 0)[torch.tensor(range(t[0].shape[e[0]])[e[1] : e[2] : -e[3]], dtype=torch.int64)].movedim(0, e[0]), ANY,
   lambda random, shapes: (axis_of(random, shapes), *(int(random.integers(-5, 6)) for _ in range(2)), int(random.integers(1, 4))))
op("nd_sliding_window", one_with_axes, lambda t, e: [t[0], Long(e[1]), Long(e[2]), e[0]], lambda t, e: t[0].unfold(e[0], e[1], e[2]), ANY,
   lambda random, shapes: (lambda axis: (axis, int(random.integers(shapes[0][axis] + 1)), int(random.integers(1, 4))))(axis_of(random, shapes)))
op("nd_diff", one_with_axes, lambda t, e: [t[0], Long(e[1]), e[0]], lambda t, e: torch.diff(t[0], n=e[1], dim=e[0]), NUMBER,
   lambda random, shapes: (axis_of(random, shapes), int(random.integers(3))))
op("nd_vecdot", lambda random: [full_shape(random, 1)] * 2, lambda t, e: [t[0], t[1], e], lambda t, e: torch.linalg.vecdot(t[0], t[1], dim=e), FLOAT,
   lambda random, shapes: -1 - int(random.integers(len(shapes[0]))))
op("nd_concat", lambda random: [full_shape(random, 1)] * 3, lambda t, e: [t, e], lambda t, e: torch.cat(t, e), ANY, axis_of)
op("nd_stack", lambda random: [any_shape(random, 0, 3)] * 2, lambda t, e: [t, e], lambda t, e: torch.stack(t, e), ANY,
   lambda random, shapes: int(random.integers(len(shapes[0]) + 1)))
op("nd_clone", one, plain, lambda t, _: t[0].clone(), ANY)
op("nd_contiguous", one, plain, lambda t, _: t[0].contiguous(), ANY)


# manipulation
PADDINGS = ["constant", "reflect", "replicate", "circular"]  # in the order of nd_padding


def pad_extra(random, shapes):
    mode, ndim = int(random.integers(4)), len(shapes[0])
    count = int(random.integers(1, ndim + 1)) if mode == 0 else ndim - 2
    most = [2 if mode in (0, 2) else size - (mode == 1) for size in shapes[0][ndim - count :]]
    return mode, [int(random.integers(0, m + 1)) for m in most for _ in range(2)], float(np.round(random.uniform(-2, 2), 2))


def torch_pad(t, e):
    mode, padding, value = e
    pairs = [padding[i : i + 2] for i in range(0, len(padding), 2)][::-1]  # PyTorch begins with the last axis
    flat = [n for p in pairs for n in p]
    return torch.nn.functional.pad(t[0], flat, PADDINGS[mode], **({"value": value} if mode == 0 else {}))


op("nd_pad", lambda random: [full_shape(random, 3)], lambda t, e: [t[0], PaddingOf(e[1]), Number(e[2]), e[0]], torch_pad, FLOAT, pad_extra)
op("nd_flip", one, lambda t, e: [t[0], Axes(e[0])], lambda t, e: torch.flip(t[0], over(e[0], t[0].shape)), ANY, axes_of)
op("nd_roll", one_with_axes, lambda t, e: [t[0], Long(e[1]), e[0]], lambda t, e: torch.roll(t[0], e[1], e[0]), ANY,
   lambda random, shapes: (axis_of(random, shapes), int(random.integers(-6, 7))))
for name in ("tril", "triu"):
    op("nd_" + name, lambda random: [any_shape(random, 2)], lambda t, e: [t[0], Long(e)], lambda t, e, f=getattr(torch, name): f(t[0], e), ANY,
       lambda random, _: int(random.integers(-4, 5)))
op("nd_repeat", one_with_axes, lambda t, e: [t[0], Long(e[1]), e[0]], lambda t, e: torch.repeat_interleave(t[0], e[1], e[0]), ANY,
   lambda random, shapes: (axis_of(random, shapes), int(random.integers(1, 4))))
op("nd_tile", lambda random: [any_shape(random, 0, 3)], lambda t, e: [t[0], Shape(e)], lambda t, e: torch.tile(t[0], e), ANY,
   lambda random, _: [int(n) for n in random.integers(1, 3, random.integers(0, 4))])
op("nd_moveaxis", one_with_axes, lambda t, e: [t[0], *e], lambda t, e: torch.moveaxis(t[0], *e), ANY,
   lambda random, shapes: (axis_of(random, shapes), axis_of(random, shapes)))
op("nd_permute", one, lambda t, e: [t[0], Axes(e)], lambda t, e: torch.permute(t[0], e), ANY, lambda random, shapes: [int(a) for a in random.permutation(len(shapes[0]))])
op("nd_expand", lambda random: [full_shape(random)], lambda t, e: [t[0], Shape(e)], lambda t, e: t[0].expand(e), ANY,
   lambda random, shapes: [2, *(3 if size == 1 and random.integers(2) else size for size in shapes[0])])
op("nd_select", lambda random: [full_shape(random, 1)], lambda t, e: [t[0], Long(e[1]), e[0]], lambda t, e: torch.select(t[0], *e), ANY,
   lambda random, shapes: (lambda axis: (axis, int(random.integers(shapes[0][axis]))))(axis_of(random, shapes)))
op("nd_one_hot", lambda random: [full_shape(random)], lambda t, _: [t[0], Long(5), operands.CODES["int64"]], lambda t, _: torch.nn.functional.one_hot(t[0], 5), ["int64"],
   order=0, index={0: lambda random, shapes, _: random.integers(0, 5, shapes[0])})
