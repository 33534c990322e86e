"""Per-sequence grammar matchers, one class per backend.

Masks must equal upstream's for the same backend, so acceptance, termination and end-of-sequence follow
vllm/v1/structured_output/backend_xgrammar.py and backend_guidance.py (0.32.0) case by case.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import llguidance.numpy as llguidance_numpy
import xgrammar

from guided_engine.ranks.counted import CountedText
from guided_engine.ranks.strings import Bitmask, PlainStrings


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
    """A matcher over a compiled grammar that all sequences of its key share.

    Parameters
    ----------
    stop_tokens
        The request's own; without them the tokenizer's stop tokens end it, as upstream.
    strings
        The grammar's plain strings, None where it has none that can be told.
    """

    counted: CountedText | None = None

    def __init__(
        self, compiled: Any, stop_tokens: Sequence[int] | None, strings: PlainStrings | None = None
    ) -> None:
        self.native = xgrammar.GrammarMatcher(
            compiled, override_stop_tokens=list(stop_tokens) if stop_tokens else None
        )
        self.strings = strings
        # Those that stay inside a plain string wherever one is.
        self.plain_tokens = strings.plain.tokens if strings is not None else frozenset()
        # The mask of the next token while it stays what it was: inside a plain string.
        self.string_mask: Bitmask | None = None
        self._ahead: list[tuple[Sequence[int], Bitmask]] = []
        self._stop_tokens = frozenset(self.native.stop_token_ids)
        self._terminated = False

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; see Matcher."""
        if self._terminated:
            return True
        before, self.string_mask = self._string_in(tokens)
        self._ahead.clear()
        accept_token = self.native.accept_token
        # Tokens within a plain string change nothing that may follow: the native matcher is not told of them.
        for index, token in enumerate(tokens[:before]):
            if not accept_token(token):
                self.string_mask = None
                return False
            if token in self._stop_tokens:
                self._terminated = True
                tokens = tokens[: index + 1]
                break
        return self.counted is None or self.counted.accept(tokens)

    def ends_at(self, token: int) -> bool:
        """Tell whether the grammar ends once that token is accepted."""
        return token in self._stop_tokens

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
                if token in self._stop_tokens:
                    break
        finally:
            if valid:
                self.native.rollback(valid)
        return _counted_prefix(self.counted, drafts[:valid])

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token; see Matcher."""
        self.native.fill_next_token_bitmask(bitmask, row)
        _restrict(self.counted, bitmask, row)

    def start_walk(self) -> Bitmask | None:
        """Forget what the last fill saw ahead; return the next token's mask if it is known already."""
        self._ahead.clear()
        return self.string_mask

    def keep_if_string(self, drafts: Sequence[int], mask: Bitmask) -> Bitmask | None:
        """Return a copy of the native matcher's mask if it stands inside a plain string after `drafts`."""
        if self.strings is None or not self.strings.holds(self.native, mask):
            return None
        kept = mask.copy()
        if drafts:
            self._ahead.append((drafts, kept))
        else:
            self.string_mask = kept
        return kept

    def reset(self) -> None:
        """Go back to the start."""
        self.native.reset()
        self.string_mask = None
        self._ahead.clear()
        self._terminated = False
        if self.counted is not None:
            self.counted.reset()

    def is_terminated(self) -> bool:
        """Tell whether a stop token was accepted."""
        return self._terminated

    def _string_in(self, tokens: Sequence[int]) -> tuple[int, Bitmask | None]:
        """Return how many tokens come before a plain string that lasts, and its mask if a fill showed it."""
        for drafts, mask in reversed(self._ahead):
            known = len(drafts)
            if list(tokens[:known]) == drafts:
                return (known, mask) if self.plain_tokens.issuperset(tokens[known:]) else (len(tokens), None)
        if self.string_mask is not None and self.plain_tokens.issuperset(tokens):
            return 0, self.string_mask
        return len(tokens), None


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
