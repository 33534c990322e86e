"""The llguidance matcher that all matchers of one grammar are copied from, and a new one when it is spent.

Copies share a lexer, which makes its states as texts come to them (llguidance 1.7.6, earley/regexvec.rs). A
token that needs too much of that, 200,000 pieces of work or 20 ms, or too many states in all, ends the lexer
for good: no copy, old or new, gets a mask any more. So the first who notices has it made anew.
"""

import collections
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from guided_grammar import stack

_WAIT_S: Final = 0.05  # which a step may wait for a new one; most take a few milliseconds
_MOST: Final = 4  # new ones within so many seconds: what texts of this grammar spend at once is no accident
_WITHIN_S: Final = 10.0


class Prototype:
    """One grammar's.

    Parameters
    ----------
    make
        Returns an llguidance.LLMatcher at the grammar's start.
    clock
        Monotonic seconds.

    Attributes
    ----------
    native
        What is copied now.
    """

    def __init__(self, make: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.native = make()
        self._is_spent = False
        self._make = make
        self._clock = clock
        self._renewals = collections.deque[float](maxlen=_MOST)
        self._is_done = threading.Event()
        self._is_done.set()

    def spend(self, native: Any) -> None:
        """Take note that what was copied is spent."""
        self._is_spent = self._is_spent or native is self.native

    def instead_of(self, spent: Any) -> Any | None:
        """Return what to copy instead of a spent one.

        None: there is nothing (yet). It is made in a thread, as the step has too little stack and no time.
        """
        self.spend(spent)
        if self._is_spent and self._is_done.is_set() and not self._is_often():
            self._renewals.append(self._clock())
            self._is_done.clear()
            stack.start("guided-renew", self._renew)
            self._is_done.wait(_WAIT_S)
        return None if self._is_spent else self.native

    def _is_often(self) -> bool:
        return len(self._renewals) == _MOST and self._clock() - self._renewals[0] < _WITHIN_S

    def _renew(self) -> None:
        try:
            self.native = self._make()
            self._is_spent = False
        finally:
            self._is_done.set()
