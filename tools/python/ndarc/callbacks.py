"""Functions of Python that the library calls, and what they raise.

ctypes returns what happens to be in a register where a function of its CFUNCTYPE raises. So what is raised is kept here, the library gets a
value that means a failure, and the call of ndarc on the same thread that led to the function raises it when the library is through.
"""

import ctypes
import functools
import sys
import threading
import traceback
import types

from .handles import Handle, handle_class
from .library import headers, library


class _Thread(threading.local):
    def __init__(self):
        self.calls = []  # what was raised in each call of the library that is under way, the innermost last


_thread = _Thread()


def begin_call():
    _thread.calls.append(None)


def end_call():
    """What the functions that it called have raised, or None."""
    return _thread.calls.pop()


def _keep(exception, function):
    """The first of a call is raised by that; what has no such place is reported as ctypes does it. Raises nothing."""
    if _thread.calls and _thread.calls[-1] is None:
        _thread.calls[-1] = exception
        return
    raised = types.SimpleNamespace(exc_type=type(exception), exc_value=exception, exc_traceback=exception.__traceback__, err_msg=None, object=function)
    try:
        if sys.unraisablehook is not sys.__unraisablehook__:
            sys.unraisablehook(raised)
        elif sys.stderr is not None:  # the default hook takes what the interpreter alone can make
            print(f"Exception ignored in: {function!r}", file=sys.stderr)
            traceback.print_exception(raised.exc_type, exception, raised.exc_traceback, file=sys.stderr)
    except BaseException:
        pass


def _returned(kind, value):
    """What C gets for a value; a handle is one reference more, which C owns. None is NULL, 0 and ND_OK."""
    if kind is None:
        return None
    if isinstance(value, Handle):
        if not isinstance(value, handle_class("nd_tensor")):
            raise TypeError(f"a function that is to return a tensor returned {value!r}")
        library.nd_object_retain(ctypes.c_void_p(value.address))
        value = value.address
    elif kind is ctypes.c_void_p and not (value is None or isinstance(value, ctypes.c_void_p)):
        raise TypeError(f"a function that is to return a tensor returned {value!r}; an address is ctypes.c_void_p(address)")
    if isinstance(value, ctypes.c_void_p):
        value = value.value
    if value is None:
        return kind().value
    made = kind(value).value
    if isinstance(value, int) and type(made) is int and made != value:
        raise OverflowError(f"a function of C cannot return {value}")
    return made


def callback(kind):
    """A decorator for a function that the library is to call; `kind` is its ctypes.CFUNCTYPE.

    It may raise, and return a handle for a pointer. From one that raises the library gets ND_ERROR_STATE, NULL, false or 0, and an error, and
    the call that led to it raises the same; sys.unraisablehook has it where none on that thread did.
    """

    def decorate(function):
        failed = headers.constants["ND_ERROR_STATE"] if kind._restype_ is ctypes.c_int else None

        @functools.wraps(function)
        def guarded(*arguments):
            try:
                return _returned(kind._restype_, function(*arguments))
            except BaseException as exception:  # also KeyboardInterrupt: nothing may pass through C
                _keep(exception, function)
                library.nd_detach(None)  # leaves an error, as whatever fails in such a function does in C
                return _returned(kind._restype_, failed)

        return kind(guarded)

    return decorate
