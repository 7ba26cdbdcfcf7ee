"""Operands of every layout for the module of tools/python, and what the programs of this folder share.

Arguments that say what they are (Long, Axes, Shape ...) are for the reader: the module reads the headers.
"""

import numpy as np
import ndarc
from ndarc import DTYPES, Error, Tensor, call, no_grad
from ndarc.library import headers, library

try:
    import ml_dtypes  # bfloat16 for NumPy, if somebody has installed it

    bfloat16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = None

__all__ = "Axes CODES Error LAYOUTS Long Number PaddingOf Shape Tensor array_of call from_numpy grad has no_grad objects_alive operand options".split()

CODES = {name: code for code, name in enumerate(DTYPES)}
Long = Number = lambda value: value
Axes = PaddingOf = Shape = list


def has(name):
    """Whether the library has a function."""
    return name in headers.functions and hasattr(library, name)


def options(name, **given):
    """nd_NAME_options; of a field that is one number, a list gives its first."""
    lengths = {field.name: field.lengths for field in headers.structs[f"nd_{name}_options"]}
    plain = {field: value[0] if isinstance(value, (list, tuple)) and not lengths[field] else value for field, value in given.items()}
    return ndarc.new_struct(f"nd_{name}_options", **plain)


def array_of(x):
    """A copy as NumPy's, with or without a gradient; bfloat16 as float32."""
    if x.dtype == "bfloat16":
        return array_of(call("nd_cast", x, "float32"))
    return np.array(call("nd_detach", x).numpy())


def objects_alive():
    """Of the root manager and all below it."""
    return ndarc.manager_get_total_objects(None)


def from_numpy(array, dtype=None):
    """Contiguous; dtype "bfloat16" converts."""
    array = np.asarray(array, order="C")
    if bfloat16 is not None and array.dtype == bfloat16:
        array, dtype = array.astype(np.float32), "bfloat16"
    x = ndarc.tensor(array, str(array.dtype))
    return call("nd_cast", x, dtype) if dtype not in (None, x.dtype) else x


def grad(output, inputs, create_graph=False):
    """Gradients of a scalar; None where the output does not depend on an input."""
    return call("nd_grad", output, inputs, create_graph=create_graph, allow_unused=True)


LAYOUTS = "contiguous transposed sliced odd expanded".split()


def operand(array, layout, random, requires_grad=False, dtype=None):
    """A tensor of the array's values that lies as asked, as far as its shape allows: (tensor, the leaf below it).

    odd: the strides of axes of size 1 are what nothing else has. expanded: all values along one axis are those of its first
    place; the caller reads the values back.
    """
    array = np.asarray(array)

    def leaf(values):
        x = from_numpy(values, dtype)
        if requires_grad:
            x.requires_grad = True
        return x

    if layout == "transposed" and array.ndim >= 2:
        axes = [int(a) for a in random.permutation(array.ndim)]
        base = leaf(array.transpose(axes))
        return call("nd_permute", base, Axes(int(np.argsort(axes)[i]) for i in range(array.ndim))), base
    if layout == "sliced" and array.ndim >= 1:
        axis, before, step = int(random.integers(array.ndim)), int(random.integers(3)), int(random.integers(1, 4))
        shape = list(array.shape)
        shape[axis] = before + array.shape[axis] * step + int(random.integers(2))
        wide = np.zeros(shape, array.dtype)
        place = [slice(None)] * array.ndim
        place[axis] = slice(before, before + array.shape[axis] * step, step)
        wide[tuple(place)] = array
        base = leaf(wide)
        return call("nd_slice", base, Long(before), Long(before + array.shape[axis] * step), Long(step), axis), base
    if layout == "odd" and array.ndim >= 1:
        # Every axis of size 1 is what is left of a longer one of a step.
        wide, places = array, []
        for axis in range(array.ndim):
            if array.shape[axis] == 1:
                size = int(random.integers(1, 6))
                at = int(random.integers(size))
                places.append((axis, at))
                wide = np.concatenate([wide] * size, axis)
        base = leaf(wide)
        x = call("nd_expand", base, Shape(base.shape))
        for axis, at in places:
            x = call("nd_slice", x, Long(at), Long(at + 1), Long(1), axis)
        return x, base
    if layout == "expanded" and array.ndim >= 1 and array.size:
        axis = int(random.integers(array.ndim))
        base = leaf(array.take([0], axis))
        return call("nd_expand", base, Shape(array.shape)), base
    base = leaf(array)
    return base, base
