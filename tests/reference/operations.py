"""The operations that compare.py calls, a line each.

    op(name, operands, arguments, reference, dtypes, ...)

name        the function of ndarc
operands    shapes(random) -> list of shapes of the tensor operands
arguments   (tensors, extra) -> the arguments of the call, as ndarc.py converts them
reference   (torch tensors, extra) -> PyTorch's result; for dtypes that PyTorch lacks NumPy's answer is `numpy`, where given
dtypes      of the operands
extra       (random, shapes) -> what else the call needs: axes, numbers; handed to both sides
low, high   range of the values; kinks: values on corners as well
order       of the gradients that are compared: 2, 1, or 0
"""

import numpy as np
import torch
from ndarc import Axes, Long, Number, Shape

OPERATIONS = []
FLOAT = ["float32", "float64"]
NUMBER = FLOAT + ["uint8", "int32", "int64"]  # int8 and int16 once elementwise loops have them
ANY = NUMBER + ["bool"]


class Operation:
    def __init__(self, name, shapes, arguments, reference, dtypes, extra=None, low=-2.0, high=2.0, order=2, kinks=False, index=None):
        self.name, self.shapes, self.arguments, self.reference, self.dtypes = name, shapes, arguments, reference, dtypes
        self.extra, self.low, self.high, self.order, self.kinks = extra, low, high, order, kinks
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


# elementwise
unary("nd_neg", torch.neg, NUMBER)
unary("nd_abs", torch.abs, NUMBER, kinks=True)
unary("nd_sign", torch.sign, NUMBER)  # of NaN: NaN as in NumPy, PyTorch 0
unary("nd_square", torch.square, NUMBER)
unary("nd_exp", torch.exp)
unary("nd_log", torch.log, low=0.2)
unary("nd_sqrt", torch.sqrt, low=0.2)
unary("nd_sin", torch.sin)
unary("nd_cos", torch.cos)
unary("nd_tanh", torch.tanh)
unary("nd_sigmoid", torch.sigmoid)
unary("nd_relu", torch.relu, kinks=True)
unary("nd_gelu", torch.nn.functional.gelu)
unary("nd_erf", torch.erf)
unary("nd_reciprocal", torch.reciprocal, low=0.3)
unary("nd_floor", torch.floor, kinks=True)
unary("nd_ceil", torch.ceil, kinks=True)
unary("nd_round", torch.round, kinks=True)
unary("nd_trunc", torch.trunc, kinks=True)
unary("nd_log1p", torch.log1p, low=-0.6)
unary("nd_expm1", torch.expm1)
unary("nd_log2", torch.log2, low=0.2)
unary("nd_log10", torch.log10, low=0.2)
unary("nd_sinh", torch.sinh)
unary("nd_cosh", torch.cosh)
unary("nd_tan", torch.tan, low=-1.2, high=1.2)
unary("nd_asin", torch.asin, low=-0.8, high=0.8)
unary("nd_acos", torch.acos, low=-0.8, high=0.8)
unary("nd_atan", torch.atan)
unary("nd_asinh", torch.asinh)
unary("nd_acosh", torch.acosh, low=1.3, high=3.0)
unary("nd_atanh", torch.atanh, low=-0.7, high=0.7)
unary("nd_silu", torch.nn.functional.silu)
unary("nd_mish", torch.nn.functional.mish)
unary("nd_softplus", torch.nn.functional.softplus)
unary("nd_logsigmoid", torch.nn.functional.logsigmoid)
unary("nd_softsign", torch.nn.functional.softsign)
unary("nd_relu6", torch.nn.functional.relu6)  # of NaN: 0, PyTorch 1
# PyTorch has no second order, and rounds its sixth to f32 in f64 too.
unary("nd_hardsigmoid", torch.nn.functional.hardsigmoid, ["float32"], order=1)
unary("nd_hardswish", torch.nn.functional.hardswish)
unary("nd_isnan", torch.isnan, kinks=True, order=0)
unary("nd_isinf", torch.isinf, kinks=True, order=0)
unary("nd_isfinite", torch.isfinite, kinks=True, order=0)
unary("nd_logical_not", torch.logical_not, ["bool"], order=0)
binary("nd_add", torch.add, NUMBER)
binary("nd_sub", torch.sub, NUMBER)
binary("nd_mul", torch.mul, NUMBER)
binary("nd_div", torch.div, low=0.3)
binary("nd_pow", torch.pow, low=0.3)
binary("nd_maximum", torch.maximum, NUMBER, kinks=True)
binary("nd_minimum", torch.minimum, NUMBER, kinks=True)
binary("nd_atan2", torch.atan2, low=0.3)
binary("nd_hypot", torch.hypot, low=0.3)
for name in "equal not_equal less less_equal greater greater_equal".split():
    torch_name = {"equal": "eq", "not_equal": "ne"}.get(name, name)
    binary("nd_" + name, getattr(torch, torch_name), ANY, kinks=True, order=0)
binary("nd_logical_and", torch.logical_and, ["bool"], order=0)
binary("nd_logical_or", torch.logical_or, ["bool"], order=0)
with_number("nd_add_scalar", torch.add)
with_number("nd_mul_scalar", torch.mul)
with_number("nd_pow_scalar", torch.pow, low=0.3)
with_number("nd_leaky_relu", torch.nn.functional.leaky_relu, extra=lambda random, _: 0.1)
with_number("nd_elu", torch.nn.functional.elu, extra=lambda random, _: 1.5)
op("nd_clip", one, lambda t, e: [t[0], Number(e[0]), Number(e[1])], lambda t, e: torch.clamp(t[0], *e), FLOAT, lambda random, _: (-1.0, 1.0), kinks=True)
op("nd_where", three, plain, lambda t, _: torch.where(t[0], t[1], t[2]), FLOAT, index={0: lambda random, shapes, _: random.integers(0, 2, shapes[0]).astype(bool)})
op("nd_masked_fill", broadcast, lambda t, e: [t[0], t[1], Number(1.5)], lambda t, e: t[0].masked_fill(t[1], 1.5), FLOAT,
   index={1: lambda random, shapes, _: random.integers(0, 2, shapes[0][len(shapes[0]):] if len(shapes[1]) > len(shapes[0]) else shapes[0]).astype(bool)})

# reductions
reduction("nd_sum", lambda t, axes, keep: torch.sum(t, axes, keep) if axes else torch.sum(t), dtypes=FLOAT)
reduction("nd_mean", lambda t, axes, keep: torch.mean(t, axes, keep) if axes else torch.mean(t), one_full)
reduction("nd_max", lambda t, axes, keep: torch.amax(t, axes, keep), one_full, order=1)
reduction("nd_min", lambda t, axes, keep: torch.amin(t, axes, keep), one_full, order=1)
op("nd_var", one_full, lambda t, e: [t[0], Axes(e[0]), 0.0, e[1]], lambda t, e: torch.var(t[0], over(e[0], t[0].shape), correction=0, keepdim=e[1]), FLOAT, axes_of)
op("nd_argmax", one_full, lambda t, e: [t[0], e, False], lambda t, e: torch.argmax(t[0], e), FLOAT, axis_of, order=0)
op("nd_argmin", one_full, lambda t, e: [t[0], e, True], lambda t, e: torch.argmin(t[0], e, True), FLOAT, axis_of, order=0)
op("nd_softmax", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.softmax(t[0], e), FLOAT, axis_of)
op("nd_log_softmax", one_with_axes, lambda t, e: [t[0], e], lambda t, e: torch.log_softmax(t[0], e), FLOAT, axis_of)
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


# indexing, views, joining
def indices(random, shapes, axis):
    return random.integers(0, shapes[0][axis], shapes[1])


op("nd_take", lambda random: [full_shape(random, 1), [int(random.integers(1, 5))]], lambda t, e: [t[0], t[1], e],
   lambda t, e: torch.index_select(t[0], e, t[1]), FLOAT, axis_of, index={1: indices})
op("nd_gather", lambda random: [full_shape(random, 1)] * 2, lambda t, e: [t[0], t[1], e],
   lambda t, e: torch.gather(t[0], e, t[1]), FLOAT, axis_of, index={1: indices})
op("nd_scatter_add", lambda random: [full_shape(random, 1)] * 3, lambda t, e: [t[0], t[1], t[2], e],
   lambda t, e: torch.scatter_add(t[0], e, t[1], t[2]), FLOAT, axis_of, index={1: indices})
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
op("nd_concat", lambda random: [full_shape(random, 1)] * 3, lambda t, e: [t, e], lambda t, e: torch.cat(t, e), ANY, axis_of)
op("nd_stack", lambda random: [any_shape(random, 0, 3)] * 2, lambda t, e: [t, e], lambda t, e: torch.stack(t, e), ANY,
   lambda random, shapes: int(random.integers(len(shapes[0]) + 1)))
op("nd_clone", one, plain, lambda t, _: t[0].clone(), ANY)
op("nd_contiguous", one, plain, lambda t, _: t[0].contiguous(), ANY)
