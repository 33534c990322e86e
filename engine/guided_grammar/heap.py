"""How much of this process's heap is in use, which tells what a library holds of a grammar."""

import ctypes
import functools
from collections.abc import Callable
from typing import Final

_FIELDS: Final = (
    "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"  # malloc.h of glibc 2.33
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def in_use() -> int:
    """Return the bytes that were asked of malloc and not freed; 0 where the C library does not tell."""
    return _read()()


@functools.cache
def _read() -> Callable[[], int]:
    call = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if call is None:
        return lambda: 0
    call.restype = _Mallinfo2

    def read() -> int:
        info = call()
        return int(info.uordblks + info.hblkhd)

    return read
