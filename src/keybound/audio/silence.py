"""Silence for C: libmpg123, which libsndfile reads MP3 with, prints on standard error.

libsndfile has no switch for that. File descriptor 2 stays as it is, so that nothing that Python
says at the same moment is lost: only the C library's own `stderr` points elsewhere for a while.
"""

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_depth = 0  # calls that are under way, in all threads
_usual: int | None = None


def _pointer() -> tuple[ctypes.c_void_p, int] | None:
    """Return the C library's variable `stderr` and a stream that leads nowhere."""
    name = "__stderrp" if sys.platform == "darwin" else "stderr"
    if sys.platform != "darwin" and platform.libc_ver()[0] != "glibc":
        return None  # elsewhere it is a constant
    try:
        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        stream = library.fopen(os.fsencode(os.devnull), b"we")
        return (ctypes.c_void_p.in_dll(library, name), stream) if stream else None
    except (OSError, ValueError, AttributeError):
        return None


_STDERR = _pointer()


@contextmanager
def silence() -> Iterator[None]:
    """Suppress what C code prints on its standard error."""
    global _depth, _usual
    if _STDERR is None:
        yield
        return
    variable, nowhere = _STDERR
    with _lock:
        if not _depth:
            _usual, variable.value = variable.value, nowhere
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                variable.value = _usual
