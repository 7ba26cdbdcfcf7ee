"""Calls of libnd.so: what Python gives becomes what the headers declare, and what comes back becomes Python's.

Which of a function's parameters a Python argument stands for is read from their form:

    handles              a Tensor or another Handle, None for NULL
    count and arrays     one sequence for each array; the count is its length; None: no elements
    nd_number, double    a bool, an int, or another real number, which becomes a float; an array or tensor without axes: its item
    nd_dtype             its name ("float32"), a NumPy dtype, or its number
    nd_device            "cpu", "cuda:1"
    nd_key               an int (the seed), or a key
    bool                 a bool, 0 or 1
    integers             an int, or what has __index__
    other enumerations   the end of a constant's name ("sum" for ND_REDUCTION_SUM), or its number
    options              None, or the fields as keyword arguments of the call
    FILE *               an open file of Python, or None
    char *               a str, bytes or a path; memory that is written: a buffer, such as a bytearray or an array of ctypes
    memory               a buffer, where the function has done with it when it returns; else, and there too, ctypes.c_void_p(address)
    functions            an instance of a ctypes.CFUNCTYPE, or None
    ret_...              no argument: results of the call, in this order; NAME=False passes NULL

A handle that a function returns as `const T *` is borrowed, and retained here; a `T *` is owned. Arguments that are missing at the
end of a call are NULL, no elements, false, or 0 for an enumeration. An error of the library is raised as Error.
"""

import ctypes
import math
import operator
import os
import pathlib
import struct

from .headers import Headers

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def _find(variable, *candidates):
    """What the environment names, else the first that exists, else the last."""
    given = os.environ.get(variable)
    if given:
        return given
    return next((str(path) for path in candidates[:-1] if path.exists()), str(candidates[-1]))


headers = Headers(_find("ND_INCLUDE", _REPOSITORY / "include", pathlib.Path("/usr/local/include"), pathlib.Path("/usr/include")))
library = ctypes.CDLL(_find("ND_LIBRARY", _REPOSITORY / "bazel-bin/libnd.so.0", pathlib.Path("libnd.so.0")))

DTYPES = "bool uint8 int32 int64 float32 float64 int8 int16 uint16 uint32 uint64 float16 bfloat16".split()
_DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPES)}
_DEVICES = {"cpu": 0, "cuda": 1}

_BASIC = {
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
# Pointers to memory and not to one thing of a type; of those to void, these are handles.
_MEMORY = {"void", "char", "DLManagedTensorVersioned", "DLManagedTensor"}
_OBJECTS = {"object", "context", "target", "kept"}
# Functions that have done with memory when they return.
_WITHIN_THE_CALL = {"nd_copy_to_host", "nd_decode_image", "nd_from_data", "nd_module_new"}
_ADDRESSES = (ctypes.c_void_p, ctypes._Pointer)
_C_VALUES = (ctypes.Structure, ctypes._SimpleCData)
_RANGES = {
    "int": (-(2**31), 2**31), "int32_t": (-(2**31), 2**31), "uint32_t": (0, 2**32), "int64_t": (-(2**63), 2**63),
    "uint64_t": (0, 2**64), "size_t": (0, 2**64), "uint8_t": (0, 2**8),
}
# Results that are arrays: as long as the call's first count, or as an axis of its first operand.
_RESULT_ARRAYS = ("ret_grads", "ret_results", "ret_parts", "ret_outputs")


class Error(Exception):
    """An error of the library: `status` is the name of its nd_status, the text its sentence."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status

    def __reduce__(self):
        return type(self), (self.status, str(self))


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


class Handle:
    """A counted object. The reference goes with it."""

    counted = True  # else what some other function ends, such as a scope

    instead_of_deepcopy = "copy.copy() makes another handle of the same object"
    instead_of_pickle = "nd.save_parameters() and nd.save_state() write files"

    def __init__(self, *_):
        raise TypeError("functions such as nd.tensor() make handles, and borrow() makes one of an address")

    @classmethod
    def take(cls, address):
        """A handle that takes over a reference to the object at an address."""
        made = cls.__new__(cls)
        made._address = operator.index(address)
        return made

    @classmethod
    def borrow(cls, address):
        """A handle on an object whose address somebody else holds, such as a C program's."""
        library.nd_object_retain(ctypes.c_void_p(address))
        return cls.take(address)

    def __copy__(self):
        """Another handle of the same object."""
        if not self.counted:
            raise TypeError(f"a {type(self).__name__} has one handle and is not copied")
        made = type(self).__new__(type(self))
        library.nd_object_retain(ctypes.c_void_p(self._address))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo):
        instead = self.instead_of_deepcopy if self.counted else "it is used where it was made"
        raise TypeError(f"a {type(self).__name__} is not deep-copied: {instead}")

    def __reduce_ex__(self, protocol):
        instead = self.instead_of_pickle if self.counted else "it is used where it was made"
        raise TypeError(f"a {type(self).__name__} is not pickled: {instead}")

    @property
    def address(self):
        return self._address

    def __del__(self):
        # At the end of the process the library may have gone before.
        if self.counted and getattr(self, "_address", None) and library is not None and library.nd_object_release is not None:
            library.nd_object_release(ctypes.c_void_p(self._address))
            self._address = None

    def __repr__(self):
        return f"<{type(self).__name__} at {self._address:#x}>"


library.nd_object_retain.restype = ctypes.c_void_p
library.nd_object_release.restype = None
library.nd_error_get_message.restype = ctypes.c_char_p
library.nd_status_get_name.restype = ctypes.c_char_p

# Parameters that take over a reference without being an array.
_CONSUMED = {("nd_object_tmp", "object"), ("nd_scope_adopt", "object"), ("nd_object_release", "object")}
# Texts that the library keeps by their address, and those that it was given.
_KEPT_TEXTS = {("nd_balance_begin", "file"), ("nd_resource_new", "type_name")}
_kept_texts = {}
# Python's class for each type of handle; those that are not here are made when one is met.
handle_classes = {}
before_calls = None  # what ndarc.dlpack may have left to do; set once, while it is imported
_structs = {"nd_number": Number}


def handle_class(name):
    if name not in handle_classes:
        counted = name not in ("nd_scope", "nd_snapshot", "nd_balance", "nd_watch")
        made = type("".join(word.title() for word in name[3:].split("_")), (Handle,), {"counted": counted})
        handle_classes.setdefault(name, made)  # another thread may have been faster
    return handle_classes[name]


def handle_of(address, base="nd_object"):
    """A handle that takes over a reference: of the class for `base`, and for an object of any type by what it is."""
    if base in ("nd_object", "void"):
        library.nd_object_get_type.restype = ctypes.POINTER(struct_type("nd_type"))
        name = library.nd_object_get_type(ctypes.c_void_p(address)).contents.name.decode()
        base = f"nd_{name}" if f"nd_{name}" in handle_classes else "nd_object"
    return handle_class(base).take(address)


def raise_error():
    """Raises the error that the library has noted on this thread, if any."""
    status = library.nd_error_get_status()
    if status:
        name, text = library.nd_status_get_name(status), library.nd_error_get_message()
        library.nd_error_clear()
        raise Error(name.decode(), text.decode(errors="replace"))


def _ctype(of):
    """What ctypes passes for a parameter or a field."""
    if of.stars:
        kind = ctypes.c_char_p if of.base == "char" and of.stars == 1 and not of.lengths else ctypes.c_void_p
    else:
        kind = _BASIC.get(of.base) or (struct_type(of.base) if of.base in headers.structs or of.base in _structs else ctypes.c_int)
    for length in reversed(of.lengths):
        kind = kind * int(headers.number(length))
    return kind


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
        fields = [(field.name, _ctype(field)) for field in headers.structs[name]]
        declared = {field.name: field for field in headers.structs[name]}
        _structs.setdefault(name, type(name, (_Struct,), {"_fields_": fields, "_declared": declared}))  # another thread may have been faster
    return _structs[name]


def new_struct(name, **given):
    """A struct as its _INIT leaves it, with these fields set."""
    return _new_struct(name, "", given)


def _new_struct(name, function, given):
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
            array[place] = _value(field.base, element)
        return
    if field.stars:
        pointed, value = value, _field_pointer(field, value)
        made.__dict__[field.name] = pointed  # which lives as long as the struct
    elif field.base == "char":
        value = value.encode() if isinstance(value, str) else value
    else:
        value = _value(field.base, value)
    ctypes.Structure.__setattr__(made, field.name, value)


def _field_pointer(field, value):
    if value is None or isinstance(value, ctypes.c_void_p):
        return value
    if field.is_callback:
        return _callback(field, value)
    if field.base == "char":
        return _text(value)
    if field.base == "void" and isinstance(value, _C_VALUES):
        return ctypes.cast(ctypes.pointer(value), ctypes.c_void_p)
    wanted = None if field.base == "void" else handle_class(field.base)
    if not wanted or not isinstance(value, wanted):
        raise TypeError(f"{field.name} is {value!r} and must be {f'of {wanted.__name__}' if wanted else 'an address: ctypes.c_void_p(address)'}")
    return value.address


def _value(base, value):
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


class _Call:
    """One call while its arguments are put together."""

    def __init__(self, function, arguments, keywords):
        self.function, self.given, self.keywords = function, list(arguments), dict(keywords)
        self.passed, self.kept, self.results = [], [], []
        self.counts = []
        self.lengths = {}  # of Python's memory, by the place of the argument
        self.consumed = []  # addresses of which the function takes over a reference

    def next_argument(self, parameter):
        """The Python argument for a parameter; what is missing at the end of a call is None."""
        if self.given:
            return self.given.pop(0)
        if parameter.name in self.keywords:
            return self.keywords.pop(parameter.name)
        optional = parameter.stars or parameter.base == "bool" or parameter.base in headers.enums or _is_callback(parameter)
        if optional and parameter.base not in ("nd_dtype",):
            return None if parameter.stars or _is_callback(parameter) else 0
        raise TypeError(f"{self.function.name}: no argument for {parameter.name}")

    def array(self, parameter, values):
        values = list(values)
        self.kept.append(values)
        if parameter.base in _BASIC and parameter.base != "char":
            kind = _BASIC[parameter.base]
            values = [_value(parameter.base, value) for value in values]
        else:
            kind = ctypes.c_char_p if parameter.base == "char" else ctypes.c_void_p
            values = [_text(value) if parameter.base == "char" else self.address_of(parameter, value) for value in values]
            # The library takes handles over in an array that it may write to.
            if not parameter.is_const and parameter.stars == 2:
                self.consumed += [value for value in values if value]
        made = (kind * max(1, len(values)))(*values)
        self.kept += [made, values]
        return made, len(values)

    def address_of(self, parameter, argument):
        """Of a handle of the right kind; None is NULL."""
        wanted = Handle if parameter.base in ("nd_object", "void") else handle_class(parameter.base)
        if argument is not None and not (isinstance(argument, wanted) and (argument.counted or wanted is not Handle)):
            raise TypeError(f"{self.function.name}: {parameter.name} is {argument!r} and must be of {wanted.__name__}")
        return None if argument is None else argument.address

    def pass_arrays(self, at):
        """The count at a place and the arrays behind it; how many parameters that were."""
        parameters = self.function.parameters
        end = at + 1
        while end < len(parameters) and _is_array(parameters[end]):
            end += 1
        arrays = [(parameter, self.next_argument(parameter)) for parameter in parameters[at + 1 : end]]
        # Of several arrays some may be NULL: nd_fftn() has axes without sizes.
        made = [None if values is None else self.array(parameter, values) for parameter, values in arrays]
        lengths = {self.count_of(parameter, one[1], len(arrays)) for one, (parameter, _) in zip(made, arrays) if one}
        if len(lengths) > 1:
            raise ValueError(f"{self.function.name}: the sequences differ in length")
        count = lengths.pop() if lengths else 0
        self.counts.append(count)
        self.passed.append(_ctype(parameters[at])(count))
        self.passed += [one[0] if one and (count or parameters[at].name == "ndim") else None for one in made]
        return end - at

    def count_of(self, parameter, length, arrays):
        """What count a sequence of that length stands for: padding has two numbers for each, milestones stand between two schedules."""
        if parameter.name == "padding":
            if length % 2:
                raise ValueError(f"{self.function.name}: padding has {length} numbers and must have two for each axis")
            return length // 2
        return length + (parameter.name == "milestones" and arrays > 1)

    def check_memory(self):
        """Python's memory is as long as what is read of it or written."""
        parameters = self.function.parameters
        for at, length in self.lengths.items():
            if self.function.name == "nd_from_data":
                ndim, shape, dtype = self.passed[1:]
                library.nd_dtype_get_size.restype = ctypes.c_size_t
                wanted = math.prod(shape[: ndim.value] if ndim.value else []) * library.nd_dtype_get_size(dtype)
            else:
                wanted = self.passed[at + 1].value
            if wanted > length:
                raise ValueError(f"{self.function.name}: {parameters[at].name} has {length} bytes and must have {wanted}")

    def pass_one(self, parameter):
        if parameter.name.startswith("ret_"):
            return self.pass_result(parameter)
        if parameter.stars == 1 and parameter.base.endswith("_options") and parameter.base in headers.structs:
            return self.pass_options(parameter)
        argument = self.next_argument(parameter)
        self.kept.append(argument)
        if parameter.base == "FILE":
            self.passed.append(None if argument is None else self.open_stream(argument))
        elif parameter.is_callback or _is_callback(parameter):
            self.passed.append(_callback(parameter, argument))
        elif parameter.stars:
            self.passed.append(self.pointer(parameter, argument))
        else:
            value = _value(parameter.base, argument)
            self.passed.append(value if isinstance(value, ctypes.Structure) else _ctype(parameter)(value))
        return None

    def pointer(self, parameter, argument):
        """What is passed for a pointer. An int is no address: who means one says ctypes.c_void_p(address)."""
        if argument is None:
            return None
        if parameter.base == "char" and parameter.is_const:
            text = _text(argument)
            return _kept_texts.setdefault(text, text) if (self.function.name, parameter.name) in _KEPT_TEXTS else text
        if parameter.base in _MEMORY and parameter.name not in _OBJECTS:
            return self.memory(parameter, argument)
        kind = struct_type(parameter.base) if parameter.base in headers.structs else _BASIC.get(parameter.base)
        if kind:
            if isinstance(argument, _ADDRESSES):
                return argument
            if not isinstance(argument, kind):
                raise TypeError(f"{self.function.name}: {parameter.name} is {argument!r} and must be of {kind.__name__}")
            return ctypes.byref(argument)
        address = self.address_of(parameter, argument)
        if address and (self.function.name, parameter.name) in _CONSUMED:
            self.consumed.append(address)
        return ctypes.c_void_p(address)

    def memory(self, parameter, argument):
        """Memory that the function reads, or writes where it is not const."""
        if isinstance(argument, _ADDRESSES):
            return argument
        if parameter.base != "char" and self.function.name not in _WITHIN_THE_CALL:
            if isinstance(argument, _C_VALUES) and parameter.base == "void":
                return ctypes.byref(argument)
            raise TypeError(f"{self.function.name}: {parameter.name} is {argument!r} and must be an address: ctypes.c_void_p(address)")
        try:
            view = memoryview(argument)
        except (TypeError, ValueError):
            raise TypeError(f"{self.function.name}: {parameter.name} is {argument!r} and must be a buffer, or ctypes.c_void_p(address)") from None
        if view.readonly and not parameter.is_const:
            raise TypeError(f"{self.function.name}: {parameter.name} is written, and {argument!r} is read-only")
        self.lengths[len(self.passed)] = view.nbytes
        if parameter.is_const and (view.readonly or not view.c_contiguous):
            return view.tobytes()
        return (ctypes.c_char * view.nbytes).from_buffer(argument)

    def pass_options(self, parameter):
        """Options given as a struct or None in their place, or as keywords."""
        fields = {field.name for field in headers.structs[parameter.base]}
        given = {name: self.keywords.pop(name) for name in list(self.keywords) if name in fields}
        options = self.given.pop(0) if self.given else None
        if options is None and given:
            options = _new_struct(parameter.base, self.function.name, given)
        self.kept.append(options)
        self.passed.append(self.pointer(parameter, options))

    def pass_result(self, parameter):
        if self.keywords.pop(parameter.name[4:], True) is False:
            self.passed.append(None)
            return
        if parameter.name in _RESULT_ARRAYS:
            if parameter.name == "ret_outputs":  # behind their count
                count = self.passed[-1].value
            else:
                count = self.counts[-1] if self.counts else self.size_of_axis()
            made = (ctypes.c_void_p * max(1, count))()
            self.results.append(lambda: [_handle(parameter, made[i]) for i in range(count)])
        elif parameter.name == "ret_shape":  # behind ret_ndim
            made = (ctypes.c_int64 * headers.constants["ND_MAX_DIMS"])()
            ndim = self.results.pop()
            self.results.append(lambda: tuple(made[: ndim()]))
        elif parameter.stars == 2 and parameter.base == "char" and self.next_is("ret_bytes"):
            made = ctypes.c_void_p()
            self.results.append(lambda: made.value)
        elif parameter.name == "ret_bytes" and self.results:  # of a text that is not terminated
            made, text = ctypes.c_size_t(), self.results.pop()
            self.results.append(lambda: ctypes.string_at(text(), made.value) if text() else None)
        elif parameter.stars == 2:
            made = ctypes.c_char_p() if parameter.base == "char" else ctypes.c_void_p()
            self.results.append(lambda: made.value if parameter.base == "char" else _handle(parameter, made.value))
        elif parameter.base in headers.structs:
            made = new_struct(parameter.base)
            self.results.append(lambda: made)
        else:
            made = _BASIC.get(parameter.base, ctypes.c_int)()
            self.results.append(lambda: made.value)
        self.passed.append(ctypes.byref(made))

    def next_is(self, name):
        """Whether the parameter behind the one that is being passed has that name."""
        at = len(self.passed) + 1
        return at < len(self.function.parameters) and self.function.parameters[at].name == name

    def size_of_axis(self):
        """nd_unstack: as many results as the axis has elements."""
        operand, axis = self.passed[0], self.passed[1]
        library.nd_get_size.restype = ctypes.c_int64
        return max(0, library.nd_get_size(operand, axis))

    def open_stream(self, file):
        if not hasattr(file, "fileno"):
            raise TypeError(f"{self.function.name}: {file!r} is no open file")
        file.flush()
        libc = ctypes.CDLL(None)
        libc.fdopen.restype = ctypes.c_void_p
        descriptor = os.dup(file.fileno())
        stream = libc.fdopen(descriptor, b"a")
        if not stream:
            os.close(descriptor)
            raise ValueError(f"{self.function.name}: {file!r} is not open for writing")
        stream = ctypes.c_void_p(stream)
        self.streams = getattr(self, "streams", []) + [stream]
        return stream

    def close_streams(self):
        for stream in getattr(self, "streams", []):
            ctypes.CDLL(None).fclose(stream)


def _is_callback(parameter):
    """A type of functions, such as nd_hook, which is an instance of a ctypes.CFUNCTYPE in Python."""
    known = parameter.base in _BASIC or parameter.base in headers.enums or parameter.base in headers.structs or parameter.base in _structs
    return not parameter.stars and not known


def _callback(parameter, argument):
    """The address of a function, as a ctypes.c_void_p."""
    if argument is not None and not isinstance(argument, (ctypes._CFuncPtr, ctypes.c_void_p)):
        raise TypeError(f"{parameter.name} is {argument!r} and must be an instance of a ctypes.CFUNCTYPE")
    return ctypes.cast(argument, ctypes.c_void_p)


def _is_array(parameter):
    """What stands behind its count."""
    if parameter.name.startswith("ret_"):
        return False
    return (parameter.stars == 1 and parameter.base in ("int", "int64_t", "double") and parameter.is_const) or parameter.stars == 2


def _text(value):
    text = os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(text, bytes):
        raise TypeError(f"{value!r} is no text")
    if b"\0" in text:
        raise ValueError(f"{value!r} has a NUL inside")
    return text


def _handle(parameter, address):
    """The Python object for a handle that the library wrote or returned; a borrowed one is retained."""
    if not address:
        return None
    if parameter.is_const:
        library.nd_object_retain(ctypes.c_void_p(address))
    return handle_of(address, parameter.base)


def _result(of, value):
    if of.stars == 1 and of.base == "char":
        return None if value is None else value.decode(errors="replace")
    if of.stars == 1 and of.base.startswith("nd_") and of.base not in headers.structs:
        return _handle(of, value)
    return value.value() if isinstance(value, Number) else value


def call(name, *arguments, **keywords):
    """Calls a function of the headers by its name: call("nd_add", x, y)."""
    if before_calls:
        before_calls()
    function = headers.functions[name]
    putting = _Call(function, arguments, keywords)
    at, parameters = 0, function.parameters
    while at < len(parameters):
        is_count = not parameters[at].stars and parameters[at].base in ("int", "size_t") and at + 1 < len(parameters)
        if is_count and _is_array(parameters[at + 1]):
            at += putting.pass_arrays(at)
        else:
            putting.pass_one(parameters[at])
            at += 1
    if putting.given or putting.keywords:
        raise TypeError(f"{name}: too many arguments: {putting.given or ''} {putting.keywords or ''}")
    foreign = getattr(library, name)
    is_status = function.result.base == "nd_status" and not function.result.stars
    is_void = function.result.base == "void" and not function.result.stars
    foreign.restype = None if is_void else _ctype(function.result)
    putting.check_memory()
    for address in putting.consumed:  # Python's own reference stays with its object
        library.nd_object_retain(ctypes.c_void_p(address))
    try:
        value = foreign(*putting.passed)
    finally:
        putting.close_streams()
    raise_error()
    results = [result() for result in putting.results]
    if not is_status and not is_void:
        results.insert(0, _result(function.result, value))
    return None if not results else results[0] if len(results) == 1 else tuple(results)
