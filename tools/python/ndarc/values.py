"""Values and _structs: what Python gives becomes what a parameter or a field of the headers is declared to be."""

import ctypes
import operator
import os
import struct

from .handles import handle_class
from .library import headers, library

DTYPES = "bool uint8 int32 int64 float32 float64 int8 int16 uint16 uint32 uint64 float16 bfloat16".split()
_DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPES)}
_DEVICES = {"cpu": 0, "cuda": 1}

BASIC = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint8_t": ctypes.c_uint8,
}
C_VALUES = (ctypes.Structure, ctypes._SimpleCData)
_RANGES = {
    "int": (-(2**31), 2**31), "int32_t": (-(2**31), 2**31), "uint32_t": (0, 2**32), "int64_t": (-(2**63), 2**63),
    "uint64_t": (0, 2**64), "size_t": (0, 2**64), "uint8_t": (0, 2**8),
}


class Number(ctypes.Structure):
    """nd_number; the union as the bits of what is in it, because ctypes passes no unions by value."""

    _fields_ = [("kind", ctypes.c_int), ("bits", ctypes.c_uint64)]

    @classmethod
    def of(cls, value):
        value = real_number(value)
        if isinstance(value, float):
            return cls(0, struct.unpack("Q", struct.pack("d", value))[0])
        if not -(2**63) <= value < 2**64:
            raise OverflowError(f"{value} is beyond 64 bits")
        return cls(2, value) if isinstance(value, bool) or value >= 2**63 else cls(1, value % 2**64)

    def value(self):
        if self.kind == 0:
            return struct.unpack("d", struct.pack("Q", self.bits))[0]
        return self.bits - 2**64 if self.kind == 1 and self.bits >= 2**63 else self.bits


def real_number(value):
    """The bool, int or float that an argument stands for: of an array or tensor without axes its item."""
    if getattr(value, "ndim", 0):
        raise TypeError(f"a {type(value).__name__} with axes is no number")
    if getattr(value, "requires_grad", False):
        raise TypeError(f"a {type(value).__name__} that requires a gradient is no number, which has none: nd.detach() drops it")
    if hasattr(value, "ndim") and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (bool, float)):
        return value
    if hasattr(type(value), "__index__"):
        return operator.index(value)
    if hasattr(type(value), "__float__"):
        return float(value)
    raise TypeError(f"{value!r} is no number")


_structs = {"nd_number": Number}


def ctype(of):
    """What ctypes passes for a parameter or a field."""
    if of.stars:
        kind = ctypes.c_char_p if of.base == "char" and of.stars == 1 and not of.lengths else ctypes.c_void_p
    else:
        kind = BASIC.get(of.base) or (struct_type(of.base) if of.base in headers.structs or of.base in _structs else ctypes.c_int)
    for length in reversed(of.lengths):
        kind = kind * int(headers.number(length))
    return kind


def is_callback(parameter):
    """A type of functions, such as nd_hook, which is an instance of a ctypes.CFUNCTYPE in Python."""
    known = parameter.base in BASIC or parameter.base in headers.enums or parameter.base in headers.structs or parameter.base in _structs
    return not parameter.stars and not known


class _Struct(ctypes.Structure):
    """A struct of the headers, whose fields take what arguments take and keep what they point to."""

    def __setattr__(self, name, value):
        field = self._declared.get(name)
        if not field:
            raise AttributeError(f"{type(self).__name__} has no field {name}")
        _set_field(self, field, value)


def struct_type(name):
    """The ctypes structure of a struct of the headers."""
    if name not in _structs:
        fields = [(field.name, ctype(field)) for field in headers.structs[name]]
        declared = {field.name: field for field in headers.structs[name]}
        _structs.setdefault(name, type(name, (_Struct,), {"_fields_": fields, "_declared": declared}))  # another thread may have been faster
    return _structs[name]


def new_struct(name, /, **given):
    """A struct as its _INIT leaves it, with these fields set."""
    return new_struct_for(name, "", given)


def new_struct_for(name, function, given):
    """The same, as a function wants it."""
    kind = struct_type(name)
    made = kind()
    names = [field for field, _ in kind._fields_]
    if names[:2] == ["size", "version"]:
        made.size, made.version = ctypes.sizeof(kind), 1
        for field, value in zip(headers.structs[name][2:], headers.initial(name, function)):
            _set_field(made, field, value)
    fields = {field.name: field for field in headers.structs[name]}
    for field, value in given.items():
        if field not in fields:
            raise TypeError(f"{name} has no field {field}")
        _set_field(made, fields[field], value)
    return made


def _set_field(made, field, value):
    if field.lengths:
        array = getattr(made, field.name)
        values = list(value) if hasattr(value, "__iter__") else [value] * len(array)
        if len(values) > len(array):
            raise ValueError(f"{field.name} has {len(array)} places")
        for place, element in enumerate(values):
            array[place] = value_of(field.base, element)
        return
    if field.stars:
        pointed, value = value, _field_pointer(field, value)
        made.__dict__[field.name] = pointed  # which lives as long as the struct
    elif field.base == "char":
        value = value.encode() if isinstance(value, str) else value
    else:
        value = value_of(field.base, value)
    ctypes.Structure.__setattr__(made, field.name, value)


def _field_pointer(field, value):
    if value is None or isinstance(value, ctypes.c_void_p):
        return value
    if field.is_callback:
        return callback(field, value)
    if field.base == "char":
        return text_of(value)
    if field.base == "void" and isinstance(value, C_VALUES):
        return ctypes.cast(ctypes.pointer(value), ctypes.c_void_p)
    wanted = None if field.base == "void" else handle_class(field.base)
    if not wanted or not isinstance(value, wanted):
        raise TypeError(f"{field.name} is {value!r} and must be {f'of {wanted.__name__}' if wanted else 'an address: ctypes.c_void_p(address)'}")
    return value.address


def value_of(base, value):
    """A value that is passed as such."""
    if base == "nd_number":
        return value if isinstance(value, Number) else Number.of(value)
    if base in ("double", "float"):
        return float(real_number(value))
    if base == "bool":
        return _bool(value)
    if base == "nd_dtype" and not hasattr(type(value), "__index__"):
        if str(value) not in _DTYPE_NUMBERS:
            raise TypeError(f"{value!r} is no dtype: {', '.join(DTYPES)}")
        return _DTYPE_NUMBERS[str(value)]
    if base == "nd_device" and isinstance(value, str):
        kind, _, index = value.partition(":")
        value = (_DEVICES[kind], int(index or 0))
    if base == "nd_key" and hasattr(type(value), "__index__"):
        library.nd_key_new.restype = struct_type("nd_key")
        return library.nd_key_new(ctypes.c_uint64(_checked("uint64_t", value)))
    if base in headers.structs:
        return _struct(base, value)
    if base in headers.enums and isinstance(value, str):
        ending, names = "_" + value.upper(), headers.enums[base]
        common = os.path.commonprefix(list(names)).rpartition("_")[0]
        # "mean" is ND_REDUCTION_MEAN and not ND_REDUCTION_BATCH_MEAN.
        found = [common + ending] if common + ending in names else [name for name in names if name.endswith(ending)]
        if len(found) != 1:
            raise ValueError(f"{value!r} is no {base}: {', '.join(names)}")
        return names[found[0]]
    return _checked(base, value)


def _bool(value):
    number = real_number(value)
    if isinstance(number, float) or number not in (0, 1):
        raise TypeError(f"{value!r} is no bool")
    return bool(number)


def _struct(name, value):
    """A struct that is passed as such, or a sequence of its fields."""
    if isinstance(value, (list, tuple)):
        made, fields = struct_type(name)(), headers.structs[name]
        if len(value) != len(fields):
            raise TypeError(f"{value!r} is no {name}, which has {len(fields)} fields")
        for field, element in zip(fields, value):
            _set_field(made, field, element)
        return made
    if not isinstance(value, struct_type(name)):
        raise TypeError(f"{value!r} is no {name}")
    return value


def _checked(base, value):
    """A number that the C type holds, which ctypes would cut."""
    if base not in _RANGES and base not in headers.enums:
        return value
    value = operator.index(value)
    low, high = _RANGES.get(base, _RANGES["int"])
    if not low <= value < high:
        raise OverflowError(f"{value} is no {base}")
    return value


def callback(parameter, argument):
    """The address of a function, as a ctypes.c_void_p."""
    if argument is not None and not isinstance(argument, (ctypes._CFuncPtr, ctypes.c_void_p)):
        raise TypeError(f"{parameter.name} is {argument!r} and must be a function of nd.callback(kind), or an instance of a ctypes.CFUNCTYPE")
    return ctypes.cast(argument, ctypes.c_void_p)


def text_of(value):
    text = os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(text, bytes):
        raise TypeError(f"{value!r} is no text")
    if b"\0" in text:
        raise ValueError(f"{value!r} has a NUL inside")
    return text
