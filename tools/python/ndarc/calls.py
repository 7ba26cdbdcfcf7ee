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
import os

from .callbacks import begin_call, end_call
from .handles import Handle, handle_class, handle_classes
from .library import headers, library, raise_error
from .values import BASIC, C_VALUES, Number, callback, ctype, is_callback, new_struct, new_struct_for, struct_type, text_of, value_of

# Pointers to memory and not to one thing of a type; of those to void, these are handles.
_MEMORY = {"void", "char", "DLManagedTensorVersioned", "DLManagedTensor"}
_OBJECTS = {"object", "context", "target", "kept"}
# Functions that have done with memory when they return.
_WITHIN_THE_CALL = {"nd_copy_to_host", "nd_decode_image", "nd_from_data", "nd_module_new"}
_ADDRESSES = (ctypes.c_void_p, ctypes._Pointer)
# Results that are arrays: as long as the call's first count, or as an axis of its first operand.
_RESULT_ARRAYS = ("ret_grads", "ret_results", "ret_parts", "ret_outputs")
# Parameters that take over a reference without being an array.
_CONSUMED = {
    ("nd_backward_release", "output"),
    ("nd_object_release", "object"),
    ("nd_object_tmp", "object"),
    ("nd_scope_adopt", "object"),
}
# Texts that the library keeps by their address, and those that it was given.
_KEPT_TEXTS = {("nd_balance_begin", "file"), ("nd_resource_new", "type_name")}
_kept_texts = {}
before_calls = None  # what ndarc.dlpack may have left to do; set once, while it is imported


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
        optional = parameter.stars or parameter.base == "bool" or parameter.base in headers.enums or is_callback(parameter)
        if optional and parameter.base not in ("nd_dtype",):
            return None if parameter.stars or is_callback(parameter) else 0
        raise TypeError(f"{self.function.name}: no argument for {parameter.name}")

    def array(self, parameter, values):
        values = list(values)
        self.kept.append(values)
        if parameter.base in BASIC and parameter.base != "char":
            kind = BASIC[parameter.base]
            values = [value_of(parameter.base, value) for value in values]
        else:
            kind = ctypes.c_char_p if parameter.base == "char" else ctypes.c_void_p
            values = [text_of(value) if parameter.base == "char" else self.address_of(parameter, value) for value in values]
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
        self.passed.append(ctype(parameters[at])(count))
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
        elif parameter.is_callback or is_callback(parameter):
            self.passed.append(callback(parameter, argument))
        elif parameter.stars:
            self.passed.append(self.pointer(parameter, argument))
        else:
            value = value_of(parameter.base, argument)
            self.passed.append(value if isinstance(value, ctypes.Structure) else ctype(parameter)(value))
        return None

    def pointer(self, parameter, argument):
        """What is passed for a pointer. An int is no address: who means one says ctypes.c_void_p(address)."""
        if argument is None:
            return None
        if parameter.base == "char" and parameter.is_const:
            text = text_of(argument)
            return _kept_texts.setdefault(text, text) if (self.function.name, parameter.name) in _KEPT_TEXTS else text
        if parameter.base in _MEMORY and parameter.name not in _OBJECTS:
            return self.memory(parameter, argument)
        kind = struct_type(parameter.base) if parameter.base in headers.structs else BASIC.get(parameter.base)
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
            if isinstance(argument, C_VALUES) and parameter.base == "void":
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
        if options is not None and given:
            raise TypeError(f"{self.function.name}: options, and beside them {', '.join(given)}")
        if given:
            options = new_struct_for(parameter.base, self.function.name, given)
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
            self.results.append(lambda: _text(made.value) if parameter.base == "char" else _handle(parameter, made.value))
        elif parameter.base in headers.structs:
            made = new_struct(parameter.base)
            self.results.append(lambda: made)
        else:
            made = BASIC.get(parameter.base, ctypes.c_int)()
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
        stream = libc.fdopen(descriptor, b"w")  # neither truncates, nor changes how the file is open
        if not stream:
            os.close(descriptor)
            raise ValueError(f"{self.function.name}: {file!r} is not open for writing")
        stream = ctypes.c_void_p(stream)
        self.streams = getattr(self, "streams", []) + [stream]
        return stream

    def close_streams(self):
        """What went wrong with what was still to be written, or None."""
        libc, failure = ctypes.CDLL(None, use_errno=True), None
        for stream in getattr(self, "streams", []):
            if libc.fclose(stream):
                code = ctypes.get_errno()
                failure = OSError(code, f"{self.function.name}: {os.strerror(code)}")
        return failure


def _is_array(parameter):
    """What stands behind its count."""
    if parameter.name.startswith("ret_"):
        return False
    return (parameter.stars == 1 and parameter.base in ("int", "int64_t", "double") and parameter.is_const) or parameter.stars == 2


def _handle_of(address, base="nd_object"):
    """A handle that takes over a reference: of the class for `base`, and for an object of any type by what it is."""
    if base in ("nd_object", "void"):
        library.nd_object_get_type.restype = ctypes.POINTER(struct_type("nd_type"))
        name = library.nd_object_get_type(ctypes.c_void_p(address)).contents.name.decode()
        base = f"nd_{name}" if f"nd_{name}" in handle_classes else "nd_object"
    return handle_class(base).take(address)


def _handle(parameter, address):
    """The Python object for a handle that the library wrote or returned; a borrowed one is retained."""
    if not address:
        return None
    if parameter.is_const:
        library.nd_object_retain(ctypes.c_void_p(address))
    return _handle_of(address, parameter.base)


def _text(value):
    return None if value is None else value.decode(errors="replace")


def _result(of, value):
    if of.stars == 1 and of.base == "char":
        return _text(value)
    if of.stars == 1 and of.base.startswith("nd_") and of.base not in headers.structs:
        return _handle(of, value)
    return value.value() if isinstance(value, Number) else value


def call(name, /, *arguments, **keywords):
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
    if putting.keywords:
        raise TypeError(f"{name}: no such arguments, or given twice: {', '.join(putting.keywords)}")
    if putting.given:
        raise TypeError(f"{name}: {len(putting.given)} arguments too many: {putting.given}")
    foreign = getattr(library, name)
    is_status = function.result.base == "nd_status" and not function.result.stars
    is_void = function.result.base == "void" and not function.result.stars
    foreign.restype = None if is_void else ctype(function.result)
    putting.check_memory()
    for address in putting.consumed:  # Python's own reference stays with its object
        library.nd_object_retain(ctypes.c_void_p(address))
    begin_call()
    library.nd_error_clear()  # what C has left on this thread is not this call's
    unwritten = None
    try:
        value = foreign(*putting.passed)
    finally:
        raised = end_call()
        unwritten = putting.close_streams()
    if raised is not None and library.nd_error_get_status():
        library.nd_error_clear()
        raise raised
    raise_error()
    results = [result() for result in putting.results]
    if not is_status and not is_void:
        results.insert(0, _result(function.result, value))
    if raised is not None or unwritten is not None:
        raise raised or unwritten
    return None if not results else results[0] if len(results) == 1 else tuple(results)
