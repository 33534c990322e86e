"""That a worker died, and whether it ran out of memory."""

from typing import Final

_MEMORY_WORDS: Final = (
    "bad_alloc",  # C++
    "memory allocation",  # Rust
    "MemoryError",  # Python
    "Cannot allocate memory",
    "Resource temporarily unavailable",  # no room for a thread's stack
)


def ran_out_of_memory(text: str) -> bool:
    """Return whether a library's message, or what it wrote as it died, says that memory ran out."""
    return any(words in text for words in _MEMORY_WORDS)


class WorkerDiedError(Exception):
    """A worker ended before it answered a job; `last_words` it wrote to standard error."""

    def __init__(self, last_words: str) -> None:
        self.last_words = last_words
        super().__init__(f"a grammar worker died in a compile {last_words[-200:]}".strip())
