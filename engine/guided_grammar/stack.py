"""Threads in which a library may compile or load a grammar.

It does so by calling itself. Where a process's stack has no limit, as some sites have it, a thread's has
2 MiB: a grammar that a worker has compiled would take the engine along.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

WORKER_BYTES: Final = 8 << 20  # that a worker compiles with: what overflows it ends there
BYTES: Final = 2 * WORKER_BYTES
_starting = threading.Lock()


def start(name: str, work: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """Start a thread that has more stack than a worker's."""
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
    with _starting:
        before = threading.stack_size(BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread
