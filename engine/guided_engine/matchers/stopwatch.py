"""How long one sequence's grammar may hold up its rank's step; one that takes longer ends alone.

A grammar that got through the sidecar's proof may still be ambiguous in a place that no walk came to, and
each token then takes thirty times as long as the one before it. All sequences of the rank wait meanwhile.
"""

import time
from collections.abc import Callable
from typing import Final

# For one token's mask, or for accepting one. The masks of real schemas take a thousandth of it.
LIMIT_NS: Final = 20_000_000
# For each of many rows, or tokens accepted at once, as after preemption; one in structure takes 1 to 20 us.
MORE_NS: Final = 100_000


class Stopwatch:
    """Tells whether a call took this thread too much CPU time, for the price of a clock of wall time.

    A thread that lost its core for a while is none: what a call took is at least the thread's CPU time since
    `mark` without the wall time between `mark` and the call. `cpu_ns` tells this thread's CPU time.
    """

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.wall_ns, self._cpu_ns = wall_ns, cpu_ns
        self.mark()

    def mark(self) -> None:
        """Begin a part of a step; the more marks, the closer the bound."""
        self._cpu_mark_ns = self._cpu_ns()
        self._wall_mark_ns = self._start_ns = self.wall_ns()

    def lost_ns(self) -> int:
        """Return for how long the thread has had no core since `mark`."""
        return max(0, self.wall_ns() - self._wall_mark_ns - (self._cpu_ns() - self._cpu_mark_ns))

    def start(self) -> None:
        """Take note of a call's start."""
        self._start_ns = self.wall_ns()

    def is_over(self, tokens: int) -> bool:
        """Return whether the call since `start`, for so many tokens, took longer than it may."""
        limit_ns = LIMIT_NS + tokens * MORE_NS
        if self.wall_ns() - self._start_ns <= limit_ns:
            return False
        before_ns = self._start_ns - self._wall_mark_ns
        return self._cpu_ns() - self._cpu_mark_ns - before_ns > limit_ns
