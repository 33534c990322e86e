"""Refusals remembered for a while: a client that sends a bad grammar again and again costs one compile."""

import math
import time
from collections.abc import Callable
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError

_OF_ITS_COST: Final = frozenset(
    {
        ErrorCode.GRAMMAR_SLOW,
        ErrorCode.GRAMMAR_COMPILE_TIMEOUT,
        ErrorCode.GRAMMAR_COMPILE_CRASHED,
        ErrorCode.GRAMMAR_COMPILE_MEMORY,
    }
)


class Refusals:
    """Refusals of grammars, by key: at most `most_entries`, for `ttl_s` seconds by a monotonic `clock`."""

    def __init__(self, most_entries: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_entries = most_entries
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: dict[str, tuple[GuidedError, float]] = {}

    def check(self, key: str) -> None:
        """Raise the known refusal of a key, if there is one.

        What it cost may have had another cause, so then the error says for how long it is refused.
        """
        error, until_s = self._kept.get(key, (None, 0.0))
        left_s = until_s - self._clock()
        if error is not None and left_s > 0:
            again = f"; it is refused for another {math.ceil(left_s)} s" if error.code in _OF_ITS_COST else ""
            raise GuidedError(error.code, error.message + again, path=error.path)

    def record(self, key: str, error: GuidedError) -> None:
        """Remember a refusal; one that says nothing about the grammar is not remembered."""
        if not error.code.retryable:
            self._kept.pop(key, None)
            # Without its traceback, which would keep the text.
            again = GuidedError(error.code, error.message, path=error.path)
            self._kept[key] = again, self._clock() + self._ttl_s
            if len(self._kept) > self._most_entries:
                del self._kept[next(iter(self._kept))]
