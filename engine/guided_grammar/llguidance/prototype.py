"""The llguidance matcher that all matchers of one grammar are copied from, made anew where it is spent.

Copies share a lexer, which makes its states as texts come to them (llguidance 1.7.6, earley/regexvec.rs). A
token that needs too much of that, 200,000 pieces of work, or too many states in all, ends the lexer for good:
no copy, old or new, gets a mask any more. The sequences that have one end; later ones get a new one.
"""

import time
from collections.abc import Callable
from typing import Any

from guided_grammar import stack


class Prototype:
    """One grammar's.

    Parameters
    ----------
    make
        Returns an llguidance.LLMatcher at the grammar's start.

    Attributes
    ----------
    native
        What is copied now.
    cost_s
        CPU seconds to make it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        start = time.thread_time()
        self.native = make()
        self.cost_s = time.thread_time() - start
        self._make = make
        self._spent: Any = None  # while another is made

    def spend(self, native: Any) -> None:
        """Take note that a lexer is spent; if it is what is copied, have that made anew meanwhile."""
        if native is self.native and native is not self._spent:
            self._spent = native
            stack.start("guided-renew", self._renew)  # a step has too little stack to compile, and no time

    def _renew(self) -> None:
        self.native = self._make()
