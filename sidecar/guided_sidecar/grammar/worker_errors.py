"""How a worker died, and whether it ran out of memory."""

import os
import signal
from typing import Final

_MEMORY_WORDS: Final = (
    "bad_alloc",  # C++
    "memory allocation",  # Rust
    "MemoryError",  # Python
    "Cannot allocate memory",
    "Resource temporarily unavailable",  # no room for a thread's stack
)


def describe(status: int | None) -> str:
    """Return a wait status in words; None: nobody saw it end, for its template had gone."""
    if status is None:
        return "ended with its template"
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with {os.waitstatus_to_exitcode(status)}"


def ran_out_of_memory(text: str) -> bool:
    """Return whether a library's message, or what it wrote as it died, says that memory ran out."""
    return any(words in text for words in _MEMORY_WORDS)


class WorkerDiedError(Exception):
    """A worker ended in the middle of a job, or before it.

    Attributes
    ----------
    status
        As waitpid gives it; None if unknown.
    last_words
        What it wrote to standard error.
    had_begun
        Whether it had read its job; if not, its death says nothing about the grammar.
    """

    def __init__(self, status: int | None, last_words: str, *, had_begun: bool = True) -> None:
        self.status = status
        self.last_words = last_words
        self.had_begun = had_begun
        super().__init__(f"{describe(status)} {last_words[-200:]}".strip())
