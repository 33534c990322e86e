"""Per-sequence grammar matchers, one class per backend.

Masks must equal upstream's for the same backend, so acceptance, termination and end-of-sequence follow
vllm/v1/structured_output/backend_xgrammar.py and backend_guidance.py (0.32.0) case by case.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import llguidance.numpy as llguidance_numpy
import numpy as np
import numpy.typing as npt
import xgrammar

from guided_engine.ranks.counted import CountedText

# [rows, ceil(vocabulary / 32)] one bit per token, 1 = allowed
Bitmask = npt.NDArray[np.int32]


class MatcherError(Exception):
    """The native matcher is in an error state; its sequence cannot go on."""


class Matcher(Protocol):
    """Where one sequence stands in its grammar."""

    counted: CountedText | None
    """What is counted beside the grammar; filled rows are restricted by it."""

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens, up to the grammar's end. False: a token is not allowed."""

    def valid_prefix(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts the grammar allows; the state stays."""

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token into one row; not for a terminated matcher."""

    def reset(self) -> None:
        """Go back to the start."""

    def is_terminated(self) -> bool:
        """Tell whether the end was accepted: nothing constrains what follows."""


class XGrammarMatcher:
    """A matcher over a compiled grammar that all sequences of its key share."""

    counted: CountedText | None = None

    def __init__(self, compiled: Any, stop_tokens: Sequence[int] | None) -> None:
        # Without a list the matcher takes the tokenizer's own stop tokens, as upstream does.
        self.native = xgrammar.GrammarMatcher(
            compiled, override_stop_tokens=list(stop_tokens) if stop_tokens else None
        )
        self._terminated = False

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; see Matcher."""
        for token in tokens:
            if self._terminated:
                return True
            if not self.native.accept_token(token):
                return False
            if self.counted is not None and not self.counted.accept((token,)):
                return False
            self._terminated = self.native.is_terminated()
        return True

    def valid_prefix(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts the grammar allows; see Matcher."""
        if self._terminated:
            return 0
        valid = 0
        try:
            for token in drafts:
                if not self.native.accept_token(token):
                    break
                valid += 1
                if self.native.is_terminated():
                    break
        finally:
            if valid:
                self.native.rollback(valid)
        return _counted_prefix(self.counted, drafts[:valid])

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token; see Matcher."""
        self.native.fill_next_token_bitmask(bitmask, row)
        _restrict(self.counted, bitmask, row)

    def reset(self) -> None:
        """Go back to the start."""
        self.native.reset()
        self._terminated = False
        if self.counted is not None:
            self.counted.reset()

    def is_terminated(self) -> bool:
        """Tell whether a stop token was accepted."""
        return self._terminated


class GuidanceMatcher:
    """A matcher copied from the prototype of its key.

    As upstream, it ends at the tokenizer's end of sequence, which a matcher that has stopped does not see.
    """

    counted: CountedText | None = None

    def __init__(self, prototype: Any, eos_token: int) -> None:
        self.native = prototype.deep_copy()
        self.eos_token = eos_token
        self._terminated = False

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; see Matcher."""
        if self._terminated:
            return True
        known = list(tokens)
        if self.eos_token in known:
            del known[known.index(self.eos_token) + 1 :]
            self._terminated = True
        self.check()
        if self.native.is_stopped():
            return True
        if not self.native.consume_tokens(known):
            return False
        return self.counted is None or self.counted.accept(known)

    def valid_prefix(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts the grammar allows; see Matcher."""
        if not drafts or self._terminated or self.native.is_stopped():
            return 0
        known = list(drafts)
        if self.eos_token in known:
            del known[known.index(self.eos_token) + 1 :]
        return _counted_prefix(self.counted, known[: self.native.validate_tokens(known)])

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token: only the end-of-sequence token once stopped; see Matcher."""
        llguidance_numpy.fill_next_token_bitmask(self.native, bitmask, row)
        self.check()
        _restrict(self.counted, bitmask, row)

    def check(self) -> None:
        """Raise MatcherError if the native matcher is in its error state, where its masks mean nothing."""
        if self.native.is_error():
            raise MatcherError("the llguidance matcher is in an error state")

    def reset(self) -> None:
        """Go back to the start."""
        self.native.reset()
        self._terminated = False
        if self.counted is not None:
            self.counted.reset()

    def is_terminated(self) -> bool:
        """Tell whether the end-of-sequence token was accepted."""
        return self._terminated


def _counted_prefix(counted: CountedText | None, drafts: Sequence[int]) -> int:
    return len(drafts) if counted is None else counted.valid_prefix(drafts)


def _restrict(counted: CountedText | None, bitmask: Bitmask, row: int) -> None:
    if counted is not None:
        counted.restrict(bitmask[row : row + 1], ())
