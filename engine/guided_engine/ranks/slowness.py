"""How long one sequence's grammar may hold up its rank's step; one that takes longer ends alone.

A grammar that got through the sidecar's proof may still be ambiguous in a place that no walk came to, and
each token then takes thirty times as long as the one before it. All sequences of the rank wait meanwhile.
"""

import time
from typing import Final

# For one token's mask, or for accepting one. The masks of real schemas take a thousandth of it.
LIMIT_NS: Final = 20_000_000
# For each of many tokens accepted at once, as after preemption; one in structure takes 1,000 to 20,000.
_MORE_TOKEN_NS: Final = 100_000


def limit_ns(*, reaches_core: bool) -> int:
    """Return the limit of a rank: twice as long where the engine core does not hear it.

    Ranks do the same work in about the same time. One that gives a sequence up alone would go on with other
    tokens than the others, so it waits for the rank at whose word the sequence ends everywhere.
    """
    return LIMIT_NS if reaches_core else 2 * LIMIT_NS


class Stopwatch:
    """Tells whether a call took this thread too much CPU time, for the price of a clock of wall time.

    A thread that lost its core for a while is none: what a call took is at least the thread's CPU time since
    `mark` without the wall time between `mark` and the call.

    Parameters
    ----------
    limit_ns
        Of a call for no token.
    """

    def __init__(self, limit_ns: int = LIMIT_NS) -> None:
        self._limit_ns = limit_ns
        self._cpu_ns = self._wall_ns = self._start_ns = 0
        self.mark()

    def mark(self) -> None:
        """Begin a part of a step; the more marks, the closer the bound."""
        self._cpu_ns = time.thread_time_ns()
        self._wall_ns = self._start_ns = time.perf_counter_ns()

    def start(self) -> None:
        """Take note of a call's start."""
        self._start_ns = time.perf_counter_ns()

    def is_over(self, tokens: int = 1) -> bool:
        """Return whether the call since `start`, for so many tokens, took longer than it may."""
        limit_ns = self._limit_ns + tokens * _MORE_TOKEN_NS
        if time.perf_counter_ns() - self._start_ns <= limit_ns:
            return False
        before_ns = self._start_ns - self._wall_ns
        return time.thread_time_ns() - self._cpu_ns - before_ns > limit_ns


class FillTimes:
    """Tells which fills are looked at one by one: those that take longer than their rows explain."""

    def __init__(self, limit_ns: int = LIMIT_NS) -> None:
        self._limit_ns = limit_ns
        self._explained_ns = 0  # the most that a row took in a fill in which no sequence was slow

    def is_suspicious(self, rows: int, took_ns: int) -> bool:
        """Return whether a sequence among these rows may have taken too long."""
        return took_ns > max(self._limit_ns, 2 * rows * self._explained_ns)

    def explain(self, rows: int, took_ns: int) -> None:
        """Take note that none had."""
        self._explained_ns = max(self._explained_ns, took_ns // rows)
