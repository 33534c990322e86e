"""One sequence's state in an llguidance grammar, and how llguidance fills the masks of a step."""

from collections.abc import Sequence
from typing import Final

import llguidance
import llguidance.numpy as llguidance_numpy

from guided_grammar.llguidance.prototype import Prototype
from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher, MatcherError, SpentError
from guided_grammar.walk import Walk

_SPENT: Final = "lexer error"  # how llguidance's words begin where the lexer is spent that copies share
_MOST_RENEWALS: Final = 2
_TOKEN_S: Final = 5e-6  # to take a token again


class GuidanceMatcher(Matcher):
    """A matcher copied from the prototype of its key.

    As upstream, it ends at the tokenizer's end of sequence, which a matcher that has stopped does not see.
    """

    backend = "guidance"

    def __init__(self, prototype: Prototype, eos_token: int) -> None:
        super().__init__((eos_token,))
        self._prototype = prototype
        self._origin = prototype.native
        self.native = self._origin.deep_copy()
        self._taken: list[int] = []

    def check(self) -> None:
        """Raise MatcherError if the native matcher is in its error state, where its masks mean nothing."""
        if not self.native.is_error():
            return
        if self._is_spent():
            raise SpentError("llguidance's lexer is spent", self._said())
        raise MatcherError("the llguidance matcher is in an error state", self._said())

    def revive(self) -> bool:
        """Go on with another lexer where this one is spent, and return whether it did.

        The first time with a new one that is shared again, then with one of its own, and no third time.
        """
        is_revived = False
        while self.native.is_error() and self._is_spent() and self.renewals < _MOST_RENEWALS:
            if not self._renew():
                return False
            is_revived = not self.native.is_error()
        return is_revived

    def _renew(self) -> bool:
        """Take all tokens again with another lexer, which may be spent by that; False: there is none."""
        allowance = self._prototype.allowance
        if self._prototype.cost_s + len(self._taken) * _TOKEN_S > allowance.left_s:
            return False
        with allowance.used():
            if not self.renewals:
                self._origin = self._prototype.copied(self._origin)
                native = self._origin and self._origin.deep_copy()
            else:
                self._origin = native = self._prototype.own()
            if native is None:
                return False
            self.native = native
            self.renewals += 1
            self.native.consume_tokens(self._taken)
        return True

    def _is_spent(self) -> bool:
        is_spent = self._said().startswith(_SPENT)
        if is_spent:
            self._prototype.spend(self._origin)
        return is_spent

    def _said(self) -> str:
        return str(self.native.get_error().partition("\n")[0])

    def _consume(self, tokens: Sequence[int]) -> bool:
        taken = list(tokens)
        native = self.native
        if native.is_stopped():  # so has one in its error state
            self.revive()
            self.check()
            if self.native.is_stopped():
                return True
            native = self.native
        while not native.consume_tokens(taken):
            if not self.revive():
                if self._is_spent():
                    self.check()
                return False
            native = self.native
        self._taken += taken
        return True

    def _count_valid(self, drafts: Sequence[int]) -> int:
        return 0 if self.native.is_stopped() else int(self.native.validate_tokens(list(drafts)))

    def _fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token: only the end-of-sequence token once stopped."""
        llguidance_numpy.fill_next_token_bitmask(self.native, bitmask, row)
        while self.revive():
            llguidance_numpy.fill_next_token_bitmask(self.native, bitmask, row)
        self.check()

    def _rewind(self) -> None:
        self.native.reset()
        self._taken = []


class GuidanceFiller:
    """Fills all rows of all sequences, drafts included, in one native call for each of two kinds of rows."""

    def __init__(self, threads: int) -> None:
        self._executor = llguidance.LLExecutor(num_threads=threads)

    def fill(self, walks: Sequence[Walk[GuidanceMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        for walk in walks:
            if walk.matcher.native.is_error():
                walk.matcher.revive()
        self._fill(walks, bitmask)
        # Of many, the caller finds out which one spends a lexer.
        while len(walks) == 1 and walks[0].matcher.revive():
            self._fill(walks, bitmask)
        for walk in walks:
            if walk.matcher.native.is_error():
                walk.matcher.check()

    def _fill(self, walks: Sequence[Walk[GuidanceMatcher]], bitmask: Bitmask) -> None:
        single, drafted = [], []
        for walk in walks:
            matcher = walk.matcher
            if not walk.drafts:
                walk.filled = 1
                single.append((matcher.native, walk.row))
                continue
            walk.valid = matcher.valid_prefix(walk.drafts)
            drafts = walk.drafts[: walk.valid]
            if drafts and drafts[-1] in matcher.ends:
                drafts = drafts[:-1]  # it may be accepted, and what follows the end is free
            walk.filled = 1 + len(drafts)
            if drafts:
                drafted.append((matcher.native, walk.row, drafts))
            else:
                single.append((matcher.native, walk.row))
        if drafted:
            llguidance_numpy.fill_next_token_bitmask_par_with_draft_tokens(self._executor, drafted, bitmask)
        if single:
            llguidance_numpy.fill_next_token_bitmask_par(self._executor, single, bitmask)
