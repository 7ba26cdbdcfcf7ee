"""libnd.so and its headers, and errors of the library as exceptions."""

import ctypes
import os
import pathlib

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
library.nd_error_get_message.restype = ctypes.c_char_p
library.nd_status_get_name.restype = ctypes.c_char_p


class Error(Exception):
    """An error of the library: `status` is the name of its nd_status, the text its sentence."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status

    def __reduce__(self):
        return type(self), (self.status, str(self))


def raise_error():
    """Raises the error that the library has noted on this thread, if any."""
    status = library.nd_error_get_status()
    if status:
        name, text = library.nd_status_get_name(status), library.nd_error_get_message()
        library.nd_error_clear()
        raise Error(name.decode(), text.decode(errors="replace"))
