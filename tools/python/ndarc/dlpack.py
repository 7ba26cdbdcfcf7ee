"""DLPack's Python form: capsules around what nd_to_dlpack() makes and nd_from_dlpack() takes.

Deleters are called without the interpreter's lock, which another thread's collection may be waiting for.
"""

import ctypes
import sys
import threading

from . import calls
from .handles import handle_class
from .library import Error, library, raise_error

_VERSIONED, _UNVERSIONED = b"dltensor_versioned", b"dltensor"
# Capsules keep the address of their name.
_USED = {_VERSIONED: ctypes.c_char_p(b"used_dltensor_versioned"), _UNVERSIONED: ctypes.c_char_p(b"used_dltensor")}
_NAMES = {name: ctypes.c_char_p(name) for name in _USED}

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Versioned(ctypes.Structure):
    """The head of DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


class _Tensor(ctypes.Structure):
    """DLTensor, by whose size DLManagedTensor's context and deleter are found."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Unversioned(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_IS_COPIED = 2

# Capsules that were handed out. They have no destructor: it would be Python, and a consumer that fails drops its capsule with its
# exception set, which Python must not run under. Instead they are held here until they were consumed, or nobody else holds them.
# Any thread adds at the end; what takes out has the lock.
_lent = []
_sweeping = threading.Lock()


def _sweep():
    # One thread sweeps at a time, and others, or a deleter that calls back, leave it to the next call.
    if not _lent or not _sweeping.acquire(blocking=False):
        return
    try:
        for place in range(len(_lent) - 1, -1, -1):
            capsule = _lent[place]
            # Before the name is looked at: who else holds the capsule may consume it any moment.
            is_held = sys.getrefcount(capsule) > 3  # this list, `capsule`, the argument
            name = next((name for name in _USED if _is_valid_object(capsule, name)), None)
            if name is None:
                _lent.pop(place)  # consumed
            elif not is_held:
                _lent.pop(place)
                address = _python.PyCapsule_GetPointer(capsule, name)
                _python.PyCapsule_SetName(capsule, _USED[name])
                _DELETER((_Versioned if name == _VERSIONED else _Unversioned).from_address(address).deleter)(address)
    finally:
        _sweeping.release()


calls.before_calls = _sweep


def export(tensor, max_version, copied=False):
    """A capsule of the newest form that the consumer knows."""
    _sweep()
    versioned = max_version is not None and max_version[0] >= 1
    function = library.nd_to_dlpack if versioned else library.nd_to_dlpack_unversioned
    function.restype = ctypes.c_void_p
    address = function(ctypes.c_void_p(tensor.address))
    try:
        raise_error()
    except Error as error:
        raise BufferError(str(error)) from error
    if copied and versioned:
        _Versioned.from_address(address).flags |= _IS_COPIED
    capsule = _python.PyCapsule_New(address, _NAMES[_VERSIONED if versioned else _UNVERSIONED], None)
    _lent.append(capsule)
    return capsule


def take_in(array):
    """A Tensor over the memory of an object that has __dlpack__."""
    try:
        capsule = array.__dlpack__(max_version=(1, 3))
    except TypeError:  # older than max_version
        capsule = array.__dlpack__()
    name = next((name for name in _USED if _is_valid_object(capsule, name)), None)
    if name is None:
        raise ValueError("no capsule of DLPack's, or one that was consumed before")
    function = library.nd_from_dlpack if name == _VERSIONED else library.nd_from_dlpack_unversioned
    function.restype = ctypes.c_void_p
    address = function(ctypes.c_void_p(_python.PyCapsule_GetPointer(capsule, name)))
    raise_error()
    _python.PyCapsule_SetName(capsule, _USED[name])
    return handle_class("nd_tensor").take(address)
