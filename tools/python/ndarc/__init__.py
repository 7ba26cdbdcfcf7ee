"""ndarc from Python: every function of the public headers by its name without nd_, on libnd.so, through ctypes.

    import ndarc as nd, numpy as np

    with nd.manager("step") as step:
        x = nd.from_dlpack(np.ones((2, 3), np.float32))     # the array's memory
        y = nd.softmax(x * 2, 1)                            # nd_softmax(nd_mul_scalar(x, 2), 1)
        array = np.from_dlpack(y)                           # the tensor's memory
    print(step.report.escaped_objects)

What a function takes and gives back is said in its C header; how Python's arguments become C's, in ndarc.calls. Nothing is
computed here and nothing is kept: a Tensor is a reference that is released with its Python object, as by nd_release(). The library
is that of ND_LIBRARY, else bazel-bin/libnd.so.0 of the repository, else the system's; the headers are those of ND_INCLUDE.
"""

import ctypes as _ctypes
import functools as _functools
import math as _math
import tempfile as _tempfile
import threading as _threading
from operator import index as _index

from . import dlpack as _dlpack
from .callbacks import callback
from .calls import call
from .handles import Handle, handle_classes
from .library import Error, headers as _headers, library as _library, raise_error as _raise_error
from .values import DTYPES, Number, new_struct, real_number as _real_number, struct_type as _struct_type, value_of as _value_of

__all__ = "DTYPES Error Handle Manager Number Tensor autocast call callback dump enable_grad from_dlpack manager new_struct no_grad tensor".split()


class Tensor(Handle):
    """An nd_tensor. Operators are the functions of their names; indices make views."""

    __array_ufunc__ = None  # NumPy's numbers leave operators with tensors to these
    instead_of_deepcopy = "nd.clone() copies its elements"
    instead_of_pickle = "nd.save_npy() and nd.save_safetensors() write files"

    @property
    def ndim(self):
        return call("nd_get_ndim", self)

    def _sizes(self, name):
        sizes = _ctypes.cast(call(name, self), _ctypes.POINTER(_ctypes.c_int64))
        return tuple(sizes[i] for i in range(self.ndim))

    @property
    def shape(self):
        return self._sizes("nd_get_shape")

    @property
    def strides(self):
        """In elements."""
        return self._sizes("nd_get_strides")

    @property
    def numel(self):
        return call("nd_get_numel", self)

    @property
    def dtype(self):
        return DTYPES[call("nd_get_dtype", self)]

    @property
    def device(self):
        device = call("nd_get_device", self)
        return f"{('cpu', 'cuda')[device.kind]}:{device.index}"

    @property
    def requires_grad(self):
        return call("nd_requires_grad", self)

    @requires_grad.setter
    def requires_grad(self, wanted):
        call("nd_set_requires_grad", self, wanted)

    @property
    def grad(self):
        return call("nd_get_grad", self)

    def backward(self, **options):
        call("nd_backward", self, **options)

    def item(self):
        """The one element as an int, a float or a bool."""
        if self.dtype.startswith(("float", "bfloat")):
            return call("nd_get_item", self)
        if self.dtype == "uint64":
            value = _ctypes.c_uint64()
            call("nd_copy_to_host", self, value, 8)
            return value.value
        value = call("nd_get_item_i64", self)
        return bool(value) if self.dtype == "bool" else value

    def numpy(self):
        """A NumPy array over the same memory, of a tensor on the CPU that requires no gradient."""
        import numpy

        return numpy.from_dlpack(self)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        wanted = array if dtype is None else array.astype(dtype, copy=False)
        if copy is False and wanted is not array:
            raise ValueError(f"{array.dtype} becomes {wanted.dtype} by a copy alone")
        return wanted.copy() if copy and wanted is array else wanted

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # Work that was queued for a device is done when nd_to_dlpack() returns: any stream is right.
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if copy is False:
                raise BufferError("another device needs a copy")
            kind = {1: "cpu", 2: "cuda"}.get(dl_device[0])
            try:
                there = call("nd_to", self, f"{kind}:{dl_device[1]}")
            except (Error, KeyError) as error:
                raise BufferError(f"no device {tuple(dl_device)}: {error}") from error
            return _dlpack.export(there, max_version, copied=True)
        return _dlpack.export(call("nd_clone", self) if copy else self, max_version, bool(copy))

    def __dlpack_device__(self):
        device = call("nd_get_device", self)
        return ((1, 2)[device.kind], device.index)

    def __len__(self):
        if not self.ndim:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        """Integers, slices, None and one Ellipsis: a view."""
        keys = key if isinstance(key, tuple) else (key,)
        taken = sum(1 for k in keys if k is not None and k is not Ellipsis)
        if taken > self.ndim:
            raise IndexError(f"{taken} indices of a tensor with {self.ndim} axes")
        x, axis, expanded = self, 0, False
        new = []  # axes of size 1, by their places in the result: last, as there is room for them when integers have taken axes away
        for k in keys:
            if k is Ellipsis:
                if expanded:
                    raise IndexError("more than one Ellipsis")
                expanded, axis = True, axis + self.ndim - taken
            elif k is None:
                new.append(axis + len(new))
            elif isinstance(k, slice):
                start, stop, step = k.indices(x.shape[axis])
                if step < 0 and start < 0:
                    start, stop, step = 0, 0, 1  # it begins before the first
                elif step < 0 and stop < 0:
                    stop = -(2**63)  # to the first
                x, axis = call("nd_slice", x, start, stop, step, axis), axis + 1
            elif isinstance(k, bool):
                raise IndexError("a bool is no index; nd_where() and nd_index() take masks")
            else:
                index = _index(k)
                if not -x.shape[axis] <= index < x.shape[axis]:
                    raise IndexError(f"index {index} of an axis of size {x.shape[axis]}")
                x = call("nd_select", x, index, axis)
        for place in new:
            x = call("nd_unsqueeze", x, place)
        return x

    def __repr__(self):
        size = call("nd_format", self, None, 0)
        buffer = _ctypes.create_string_buffer(size + 1)
        _library.nd_format(_ctypes.c_void_p(self.address), buffer, _ctypes.c_size_t(size + 1))
        return buffer.value.decode()

    def __bool__(self):
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __format__(self, how):
        return format(self.item() if how and self.shape == () else str(self), how)

    def __contains__(self, number):
        """Whether an element is equal to it. What cannot be compared with a tensor is in none."""
        equal = self == number
        return isinstance(equal, Tensor) and bool(call("nd_any", equal, [], False))


def _number_like(x, number, divides):
    """A tensor without axes that an operation with x takes for the number, by the rule of nd_add_scalar() and nd_div_scalar(): its dtype is
    x's, and f32 where x is of integers and the number has a fraction, or they are divided; beside bool what is not 0 or 1 is f32, too."""
    dtype = x.dtype
    if not dtype.startswith(("float", "bfloat")):
        is_integer = isinstance(number, int) or number.is_integer()
        if divides or not is_integer or (dtype == "bool" and number not in (0, 1)):
            dtype = "float32"
    made = call("nd_full", [], number, dtype)
    return made if x.device == "cpu:0" else call("nd_to", made, x.device)


def _comparable(dtype, number):
    """The number, or one of 64 bits that compares with the dtype's as it does: an infinity beyond all integers of the dtype, and of
    an integer beyond 64 bits the float next to it."""
    kind = dtype.rstrip("0123456789")
    if kind in ("int", "uint"):
        values = 2 ** int(dtype[len(kind):])
        low = 0 if kind == "uint" else -values // 2
        if number == number and not low <= number < low + values:
            return _math.inf if number > 0 else -_math.inf
    elif isinstance(number, int) and not -(2**63) <= number < 2**64:
        try:
            return float(number)
        except OverflowError:
            return _math.inf if number > 0 else -_math.inf
    return number


def _operator(name, number=None, swapped=False, compares=False):
    def apply(self, other=None):
        if not isinstance(other, Tensor):
            try:
                other = _real_number(other)
            except TypeError:
                return NotImplemented
            if number:
                return call(number, self, other)
            if compares:
                other = _comparable(self.dtype, other)
            other = _number_like(self, other, name == "nd_div")
        return call(name, other, self) if swapped else call(name, self, other)

    return apply


for _python, _name, _number in (
    ("add", "nd_add", "nd_add_scalar"),
    ("sub", "nd_sub", "nd_sub_scalar"),
    ("mul", "nd_mul", "nd_mul_scalar"),
    ("truediv", "nd_div", "nd_div_scalar"),
    ("pow", "nd_pow", "nd_pow_scalar"),
    ("floordiv", "nd_floor_divide", None),
    ("mod", "nd_remainder", None),
    ("matmul", "nd_matmul", None),
    ("and", "nd_bitwise_and", None),
    ("or", "nd_bitwise_or", None),
    ("xor", "nd_bitwise_xor", None),
    ("lshift", "nd_bitwise_left_shift", None),
    ("rshift", "nd_bitwise_right_shift", None),
):
    setattr(Tensor, f"__{_python}__", _operator(_name, _number))
    _commutes = _python in ("add", "mul")
    setattr(Tensor, f"__r{_python}__", _operator(_name, _number if _commutes else None, swapped=True))
for _python, _name in (("eq", "nd_equal"), ("ne", "nd_not_equal"), ("lt", "nd_less"), ("le", "nd_less_equal"), ("gt", "nd_greater"), ("ge", "nd_greater_equal")):
    setattr(Tensor, f"__{_python}__", _operator(_name, compares=True))
Tensor.__hash__ = Handle.__hash__  # by identity, as of every handle
for _python, _name in (("neg", "nd_neg"), ("abs", "nd_abs"), ("invert", "nd_bitwise_invert")):
    setattr(Tensor, f"__{_python}__", lambda self, name=_name: call(name, self))


_of_thread = _threading.local()


def _blocks():
    """The manager blocks that this thread is in, the innermost last."""
    if not hasattr(_of_thread, "blocks"):
        _of_thread.blocks = []
    return _of_thread.blocks


class Manager(Handle):
    """An nd_manager. As a block it is the current manager of the thread, and is closed at the block's end; `report` is then what
    nd_manager_close() said. What Python still holds moves to the manager above."""

    report = None

    def __enter__(self):
        _library.nd__manager_block_begin.restype = _struct_type("nd_manager_block")
        block = _library.nd__manager_block_begin(_ctypes.c_void_p(self.address))
        _raise_error()
        _blocks().append((self, block))
        return self

    def __exit__(self, *_):
        """The innermost block of the thread ends. One of another thread, or around others (of a generator that was left behind),
        cannot: RuntimeError, and the manager stays current."""
        blocks = _blocks()
        if not blocks or blocks[-1][0] is not self:
            raise RuntimeError(f"{self!r} is not the innermost manager block of this thread")
        _library.nd__manager_block_end(_ctypes.byref(blocks.pop()[1]))
        _raise_error()
        self.close()

    def close(self):
        self.report = call("nd_manager_close", self)

    @property
    def stats(self):
        return call("nd_manager_get_stats", self)


class List(Handle):
    """An nd_list, which is a sequence."""

    def __len__(self):
        return call("nd_list_get_size", self)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = _index(index)
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise IndexError(index)
        return call("nd_list_get", self, place)

    def __contains__(self, object):
        """The object itself; tensors compare by element."""
        return isinstance(object, Handle) and any(x.address == object.address for x in self)


class Map(Handle):
    """An nd_map: names and objects, in the order in which they came."""

    def __len__(self):
        return call("nd_map_get_size", self)

    def __getitem__(self, name):
        if not call("nd_map_contains", self, name):
            raise KeyError(name)
        return call("nd_map_get", self, name)

    def items(self):
        at = _ctypes.c_size_t(0)
        while (found := call("nd_map_next", self, at))[0]:
            yield found[1], found[2]

    def __iter__(self):
        return (name for name, _ in self.items())


handle_classes.update(nd_tensor=Tensor, nd_manager=Manager, nd_list=List, nd_map=Map)


def manager(name=None, parent=None):
    """A new manager, below the current one or `parent`."""
    return call("nd_manager_new", parent, name)


class _SettingBlock:
    """nd_no_grad, nd_enable_grad and nd_autocast, as blocks; can be used again, also by another thread."""

    def __init__(self, kind, setting):
        self._kind, self._setting, self._of_thread = kind, setting, _threading.local()

    def __enter__(self):
        begin = getattr(_library, f"nd__{self._kind}_block_begin")
        begin.restype = _struct_type(f"nd_{self._kind}_block")
        block = begin(self._setting)
        self._of_thread.blocks = getattr(self._of_thread, "blocks", []) + [block]

    def __exit__(self, *_):
        getattr(_library, f"nd__{self._kind}_block_end")(_ctypes.byref(self._of_thread.blocks.pop()))


def no_grad():
    """`with nd.no_grad():` records nothing."""
    return _SettingBlock("grad", _ctypes.c_bool(False))


def enable_grad():
    """`with nd.enable_grad():` records again inside no_grad()."""
    return _SettingBlock("grad", _ctypes.c_bool(True))


def autocast(dtype):
    """`with nd.autocast("bfloat16"):` as nd_autocast: "float16" and "bfloat16" lower products, "float32" lowers nothing."""
    number = _value_of("nd_dtype", dtype)
    if number not in map(_headers.constants.get, ("ND_F16", "ND_BF16", "ND_F32")):
        raise ValueError(f"autocast: the dtype is {dtype!r}; it must be bfloat16, float16 or float32")
    return _SettingBlock("autocast", _ctypes.c_int(number))


def from_dlpack(array):
    """A tensor over the memory of an array of NumPy's, PyTorch's or whoever's has __dlpack__; written by both."""
    return _dlpack.take_in(array)


def tensor(values, dtype=None):
    """A tensor with a copy of numbers, nested sequences of them, or an array."""
    import numpy

    if dtype == "bfloat16":
        is_whole = numpy.array(values).dtype.kind in "biu"  # of integers f64 would round first
        return call("nd_cast", tensor(values, None if is_whole else "float64"), dtype)
    array = numpy.array(values, dtype, order="C")
    if dtype is None and array.dtype == numpy.float64 and not hasattr(values, "dtype"):
        array = array.astype(numpy.float32)  # Python's floats, as everywhere
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return call("nd_from_data", _ctypes.c_void_p(array.ctypes.data), array.shape, str(array.dtype))


def dump(manager=None):
    """The text of nd_debug_dump(): managers, objects, who holds what."""
    with _tempfile.TemporaryFile("w+") as file:
        call("nd_debug_dump", manager, file)
        file.seek(0)
        return file.read()


def __getattr__(name):
    """nd.softmax is nd_softmax, nd.F32 is ND_F32."""
    if f"nd_{name}" in _headers.functions:
        if not hasattr(_library, f"nd_{name}"):
            raise AttributeError(f"this library has no nd_{name}")
        function = _functools.partial(call, f"nd_{name}")
        function.__doc__ = f"nd_{name}({', '.join(p.name for p in _headers.functions[f'nd_{name}'].parameters)})"
        return function
    if f"ND_{name}" in _headers.constants:
        return _headers.constants[f"ND_{name}"]
    raise AttributeError(f"ndarc has no {name}")


def __dir__():
    return __all__ + [name[3:] for name in _headers.functions if not name.startswith("nd__") and hasattr(_library, name)]
