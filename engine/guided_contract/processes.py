"""What the kernel does for a process: when one dies, and how many files one may open."""

import ctypes
import os
import resource
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends, by whatever cause."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended in between
        os._exit(0)


def reap_descendants() -> None:
    """Become the parent of our descendants' orphans, as PID 1 is by itself."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as whoever set its limits allows.

    Container runtimes leave the limit that counts at 1,024, for programs that call select.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
