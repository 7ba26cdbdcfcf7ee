"""The option structs of the public headers as ctypes structures, by the fields that follow size and version."""

import ctypes
from ctypes import c_bool, c_double, c_int, c_int64
from ndarc import Key


def structure(name, *fields):
    """A function that makes one: fields are (name, type, default)."""

    class Options(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32), *((field, kind) for field, kind, _ in fields)]

    def make(**given):
        options = Options(ctypes.sizeof(Options), 1)
        for field, kind, default in fields:
            value = given.pop(field, default)
            setattr(options, field, kind(*value) if isinstance(value, (list, tuple)) else value)
        assert not given, f"{name} has no {given}"
        return options

    return make


def of_axes(name, axes, *fields):
    """One number of each field for each axis; of one axis no array. Lists become what the struct has."""
    longs = c_int64 * axes if axes > 1 else c_int64
    made = structure(name, *((field, longs if kind is None else kind, [default] * axes if kind is None and axes > 1 else default) for field, kind, default in fields))

    def make(**given):
        return made(**{field: value[0] if isinstance(value, (list, tuple)) and axes == 1 else value for field, value in given.items()})

    return make


conv = {n: of_axes("conv", n, ("stride", None, 1), ("padding", None, 0), ("dilation", None, 1), ("groups", c_int64, 1), ("extra_padding", None, 0)) for n in (1, 2, 3)}
conv_transpose = {
    n: of_axes("conv_transpose", n, ("stride", None, 1), ("padding", None, 0), ("output_padding", None, 0), ("dilation", None, 1), ("groups", c_int64, 1))
    for n in (1, 2, 3)
}
max_pool = {n: of_axes("max_pool", n, ("kernel", None, 0), ("stride", None, 0), ("padding", None, 0), ("dilation", None, 1), ("ceil_mode", c_bool, False)) for n in (1, 2, 3)}
avg_pool = {
    n: of_axes("avg_pool", n, ("kernel", None, 0), ("stride", None, 0), ("padding", None, 0), ("ceil_mode", c_bool, False), ("count_include_pad", c_bool, True), ("divisor", c_int64, 0))
    for n in (1, 2, 3)
}
interpolate = structure("interpolate", ("sizes", c_int64 * 3, [0] * 3), ("scales", c_double * 3, [0.0] * 3), ("mode", c_int, 0), ("align_corners", c_bool, False))
unfold = of_axes("unfold", 2, ("kernel", None, 0), ("stride", None, 1), ("padding", None, 0), ("dilation", None, 1))
batch_norm = structure("batch_norm", ("momentum", c_double, 0.1), ("epsilon", c_double, 1e-5), ("training", c_bool, False))
attention = structure("attention", ("scale", c_double, 0.0), ("dropout", c_double, 0.0), ("key", Key, Key()), ("causal", c_bool, False))
recurrent = structure(
    "recurrent", ("layers", c_int64, 1), ("dropout", c_double, 0.0), ("key", Key, Key()), ("bidirectional", c_bool, False),
    ("batch_first", c_bool, False), ("training", c_bool, False), ("relu", c_bool, False),
)
cross_entropy = structure("cross_entropy", ("reduction", c_int, 0), ("label_smoothing", c_double, 0.0), ("ignored", c_int64, -100))
