"""Handles: Python objects that hold a reference to an object of the library each."""

import ctypes
import operator

from .library import library

library.nd_object_retain.restype = ctypes.c_void_p
library.nd_object_release.restype = None


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


# Python's class for each type of handle; those that are not here are made when one is met.
handle_classes = {}


def handle_class(name):
    if name not in handle_classes:
        counted = name not in ("nd_scope", "nd_snapshot", "nd_balance", "nd_watch")
        made = type("".join(word.title() for word in name[3:].split("_")), (Handle,), {"counted": counted})
        handle_classes.setdefault(name, made)  # another thread may have been faster
    return handle_classes[name]
