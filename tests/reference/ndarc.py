"""libnd.so through ctypes: owned tensors, errors as exceptions, and operands of every layout.

A handle that a Tensor has is released with it. Every argument of a call is converted by what it is: a Tensor, a Number, a
float, a bool, an int (C's int), a Long (int64_t), an Axes or Shape (count and pointer), a list of Tensors (count and
pointer), a ctypes structure (by pointer), None (NULL).
"""

import ctypes
import os
import struct
import numpy as np

try:
    import ml_dtypes  # bfloat16 for NumPy, if somebody has installed it

    bfloat16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = None

# In the order of nd_dtype.
DTYPES = "bool uint8 int32 int64 float32 float64 int8 int16 uint16 uint32 uint64 float16 bfloat16".split()
CODES = {name: code for code, name in enumerate(DTYPES)}
OK, SHAPE_ERROR = 0, 2

library = ctypes.CDLL(os.environ.get("ND_LIBRARY", "bazel-bin/libnd.so"))


class Number(ctypes.Structure):
    """nd_number, by value; the union as the bits of what is in it, because ctypes passes no unions."""

    _fields_ = [("kind", ctypes.c_int), ("bits", ctypes.c_int64)]

    def __init__(self, value):
        super().__init__()
        if isinstance(value, float):
            self.kind, self.bits = 0, struct.unpack("q", struct.pack("d", value))[0]
        else:
            self.kind, self.bits = 1, int(value)


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("index", ctypes.c_int)]


class BackwardOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("create_graph", ctypes.c_bool),
        ("allow_unused", ctypes.c_bool),
        ("grad", ctypes.c_void_p),
    ]


class GradBlock(ctypes.Structure):
    _fields_ = [("once", ctypes.c_bool), ("previous", ctypes.c_bool)]


class Key(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("stream", ctypes.c_uint64)]


class Long(int):
    """int64_t."""


class Axes(list):
    """Count and const int *; nothing: all (0, NULL)."""


class Shape(list):
    """Count and const int64_t *."""


class PaddingOf(list):
    """Count of axes and const int64_t *, two for each axis."""


class Error(Exception):
    pass


for name in "nd_get_shape nd_get_strides nd_get_data nd_get_grad nd_error_get_message nd_get_node".split():
    getattr(library, name).restype = ctypes.c_void_p
library.nd_get_numel.restype = ctypes.c_int64
library.nd_error_get_message.restype = ctypes.c_char_p
library.nd_get_count.restype = ctypes.c_uint32
library.nd__grad_block_begin.restype = GradBlock
library.nd_is_leaf.restype = library.nd_requires_grad.restype = ctypes.c_bool
library.nd_key_new.restype = Key
library.nd_manager_get_total_objects.restype = ctypes.c_uint64


class Tensor:
    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        if self.handle and library is not None:
            library.nd_object_release(ctypes.c_void_p(self.handle))

    @property
    def ndim(self):
        return library.nd_get_ndim(ctypes.c_void_p(self.handle))

    def _longs(self, function):
        pointer = ctypes.cast(function(ctypes.c_void_p(self.handle)), ctypes.POINTER(ctypes.c_int64))
        return tuple(pointer[i] for i in range(self.ndim))

    @property
    def shape(self):
        return self._longs(library.nd_get_shape)

    @property
    def strides(self):
        return self._longs(library.nd_get_strides)

    @property
    def dtype(self):
        return DTYPES[library.nd_get_dtype(ctypes.c_void_p(self.handle))]

    @property
    def requires_grad(self):
        return library.nd_requires_grad(ctypes.c_void_p(self.handle))

    @property
    def grad(self):
        handle = library.nd_get_grad(ctypes.c_void_p(self.handle))
        return Tensor(library_retain(handle)) if handle else None

    def numpy(self):
        """A copy as NumPy's; bfloat16 as float32."""
        if self.dtype == "bfloat16" and bfloat16 is None:
            return call("nd_cast", self, CODES["float32"]).numpy()
        array = np.empty(self.shape, bfloat16 if self.dtype == "bfloat16" else self.dtype)
        status("nd_copy_to_host", self, Raw(array.ctypes.data), Size(array.nbytes))
        return array.astype(np.float32) if self.dtype == "bfloat16" else array


class Raw(int):
    """A pointer."""


class Size(int):
    """size_t."""


def library_retain(handle):
    library.nd_object_retain.restype = ctypes.c_void_p
    return library.nd_object_retain(ctypes.c_void_p(handle))


def _convert(argument, kept):
    if isinstance(argument, Tensor):
        return [ctypes.c_void_p(argument.handle)]
    if argument is None or isinstance(argument, Raw):
        return [ctypes.c_void_p(argument)]
    if isinstance(argument, (Number, Key, Device)):
        return [argument]
    if isinstance(argument, ctypes.Structure):
        return [ctypes.byref(argument)]
    if isinstance(argument, bool):
        return [ctypes.c_bool(argument)]
    if isinstance(argument, Size):
        return [ctypes.c_size_t(argument)]
    if isinstance(argument, Long):
        return [ctypes.c_int64(argument)]
    if isinstance(argument, int):
        return [ctypes.c_int(argument)]
    if isinstance(argument, float):
        return [ctypes.c_double(argument)]
    if isinstance(argument, PaddingOf):
        array = (ctypes.c_int64 * max(1, len(argument)))(*argument)
        kept.append(array)
        return [ctypes.c_int(len(argument) // 2), array]
    if isinstance(argument, Axes):
        array = (ctypes.c_int * len(argument))(*argument)
    elif isinstance(argument, Shape):
        array = (ctypes.c_int64 * max(1, len(argument)))(*argument)
    else:
        array = (ctypes.c_void_p * len(argument))(*[x.handle for x in argument])
        kept.append(array)
        return [ctypes.c_size_t(len(argument)), array]
    kept.append(array)
    return [ctypes.c_int(len(argument)), array if len(argument) or isinstance(argument, Shape) else None]


def _call(restype, name, arguments):
    function = getattr(library, name)
    function.restype = restype
    kept = []
    return function(*[c for a in arguments for c in _convert(a, kept)])


def message():
    return (library.nd_error_get_message() or b"").decode()


def call(name, *arguments):
    """The owned tensor that a function returns."""
    handle = _call(ctypes.c_void_p, name, arguments)
    if not handle:
        text = message()
        library.nd_error_clear()
        raise Error(f"{name}: {text}")
    return Tensor(handle)


def status(name, *arguments):
    """A function that returns a status."""
    if _call(ctypes.c_int, name, arguments) != OK:
        text = message()
        library.nd_error_clear()
        raise Error(f"{name}: {text}")


class no_grad:
    def __enter__(self):
        self.block = library.nd__grad_block_begin(ctypes.c_bool(False))

    def __exit__(self, *_):
        library.nd__grad_block_end(ctypes.byref(self.block))


def objects_alive():
    """Of the root manager and all below it."""
    library.nd_manager_get_root.restype = ctypes.c_void_p
    return library.nd_manager_get_total_objects(ctypes.c_void_p(library.nd_manager_get_root()))


def from_numpy(array, dtype=None):
    """Contiguous; dtype "bfloat16" converts."""
    array = np.asarray(array, order="C")
    name = str(array.dtype)
    if bfloat16 is not None and array.dtype == bfloat16:
        array, dtype, name = array.astype(np.float32), "bfloat16", "float32"
    library.nd_from_data.restype = ctypes.c_void_p
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    handle = library.nd_from_data(ctypes.c_void_p(array.ctypes.data), array.ndim, shape, CODES[name])
    if not handle:
        raise Error(message())
    x = Tensor(handle)
    return call("nd_cast", x, CODES[dtype]) if dtype not in (None, name) else x


def grad(output, inputs, create_graph=False):
    """Gradients of a scalar; None where the output does not depend on an input."""
    options = BackwardOptions(ctypes.sizeof(BackwardOptions), 1, create_graph, True, None)
    given = (ctypes.c_void_p * len(inputs))(*[x.handle for x in inputs])
    results = (ctypes.c_void_p * len(inputs))()
    code = library.nd_grad(ctypes.c_void_p(output.handle), ctypes.c_size_t(len(inputs)), given, ctypes.byref(options), results)
    if code != OK:
        text = message()
        library.nd_error_clear()
        raise Error(f"nd_grad: {text}")
    return [Tensor(handle) if handle else None for handle in results]


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
            status("nd_set_requires_grad", x, True)
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
