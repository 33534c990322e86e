"""What the kernel does for a process: signals, what happens when one dies, how many files one may open."""

import ctypes
import os
import resource
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
ENDED_BY_TERM: Final = 128 + signal.SIGTERM  # as a shell says it


def end_on_term() -> None:
    """Have TERM end this process at once, until it listens in its own way; before slow imports.

    The kernel spares a container's first process each signal that it has no handler for: a pod that is
    deleted as it starts would serve on until its grace period is over.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED_BY_TERM))


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
