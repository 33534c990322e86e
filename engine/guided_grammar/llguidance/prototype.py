"""The llguidance matcher that all matchers of one grammar are copied from, and others where it is spent.

Copies share a lexer, which makes its states as texts come to them (llguidance 1.7.6, earley/regexvec.rs). A
token that needs too much of that, 200,000 pieces of work or 20 ms, or too many states in all, ends the lexer
for good: no copy, old or new, gets a mask any more.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from guided_grammar import stack

_PATIENCE_S: Final = 1.0  # for what takes a fifth of that at most, on a machine that may be busy


class Allowance:
    """How much CPU time of a rank all its sequences together may take to be brought to new lexers.

    A fifth of a second at once, and a twentieth of the time in the long run.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    MOST_S: Final = 0.2
    _SHARE: Final = 0.05

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_s = self.MOST_S
        self._at = clock()

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 where the last use took longer than there was."""
        now = self._clock()
        self._left_s = min(self.MOST_S, self._left_s + self._SHARE * (now - self._at))
        self._at = now
        return self._left_s

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Take off what the body takes this thread."""
        start = time.thread_time()
        try:
            yield
        finally:
            self.take(time.thread_time() - start)

    def take(self, cpu_s: float) -> None:
        """Take off what another thread takes."""
        self._left_s = self.left_s - cpu_s


class Prototype:
    """One grammar's.

    Parameters
    ----------
    make
        Returns an llguidance.LLMatcher at the grammar's start.
    allowance
        The rank's.

    Attributes
    ----------
    native
        What is copied now.
    cost_s
        CPU seconds to make it.
    """

    def __init__(self, make: Callable[[], Any], allowance: Allowance) -> None:
        start = time.thread_time()
        self.native = make()
        self.cost_s = time.thread_time() - start
        self.allowance = allowance
        self._make = make
        self._is_spent = False
        self._is_made = threading.Event()
        self._is_made.set()

    def spend(self, native: Any) -> None:
        """Take note that a lexer is spent; if it is what is copied, have that made anew."""
        if native is self.native and self._is_made.is_set():
            self._is_spent = True
            self._is_made.clear()
            self.allowance.take(self.cost_s)
            self._begin(self._renew)

    def copied(self, spent: Any) -> Any | None:
        """Return what to copy instead of something spent; None: that is not there in time."""
        self.spend(spent)
        if self._is_made.wait(_PATIENCE_S) and not self._is_spent:
            return self.native
        self.allowance.take(Allowance.MOST_S)  # nobody else waits for it
        return None

    def own(self) -> Any | None:
        """Return a matcher that shares nothing; None: it is not there in time."""
        found: list[Any] = []
        self.allowance.take(self.cost_s)
        self._begin(lambda: found.append(self._make())).join(_PATIENCE_S)
        if not found:
            self.allowance.take(Allowance.MOST_S)
        return found[0] if found else None

    def _renew(self) -> None:
        try:
            self.native = self._make()
            self._is_spent = False
        finally:
            self._is_made.set()

    @staticmethod
    def _begin(work: Callable[[], None]) -> threading.Thread:
        return stack.start("guided-renew", work)  # a step has too little stack to compile
