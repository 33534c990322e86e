"""One sequence's state in an llguidance grammar, and how llguidance fills the masks of a step."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import llguidance
import llguidance.numpy as llguidance_numpy

from guided_grammar import stack
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher, MatcherError, SpentError

_SPENT: Final = "lexer error"  # how llguidance's words begin where the lexer is spent that copies share


class Prototype:
    """What all matchers of one grammar are copied from: `native`, which `make` returns.

    Copies share a lexer, which makes its states as texts come to them. A token that needs too many, or too
    many in all, spend it for good, and end the sequences that have it; later ones get a new one.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.native = make()
        self._make = make
        self._spent: Any = None  # while another is made

    def spend(self, native: Any) -> None:
        """Take note that a lexer is spent; if it is what is copied, have that made anew meanwhile."""
        if native is self.native and native is not self._spent:
            self._spent = native
            stack.start("guided-renew", self._renew)  # a step has too little stack to compile, and no time

    def _renew(self) -> None:
        self.native = self._make()


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

    def check(self) -> None:
        """Raise MatcherError if the native matcher is in its error state, where its masks mean nothing."""
        if self.native.is_error():
            said = self._check_lexer()
            raise MatcherError("the llguidance matcher is in an error state", said)

    def _check_lexer(self) -> str:
        said = str(self.native.get_error().partition("\n")[0])
        if said.startswith(_SPENT):
            self._prototype.spend(self._origin)
            raise SpentError("llguidance's lexer is spent", said)
        return said

    def _consume(self, tokens: Sequence[int]) -> bool:
        if self.native.is_stopped():  # so has one in its error state
            self.check()
            return True
        if self.native.consume_tokens(list(tokens)):
            return True
        self._check_lexer()
        return False

    def _count_valid(self, drafts: Sequence[int]) -> int:
        return 0 if self.native.is_stopped() else int(self.native.validate_tokens(list(drafts)))

    def _fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token: only the end-of-sequence token once stopped."""
        llguidance_numpy.fill_next_token_bitmask(self.native, bitmask, row)
        self.check()

    def _rewind(self) -> None:
        self.native = self._origin.deep_copy()  # its reset() does not leave an error state


class GuidanceFiller:
    """Fills all rows of all sequences, drafts included, in one native call for each of two kinds of rows."""

    def __init__(self, threads: int) -> None:
        self._executor = llguidance.LLExecutor(num_threads=threads)

    def fill(self, batch: Sequence[GuidedRows[GuidanceMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        single, drafted = [], []
        for guided in batch:
            matcher = guided.matcher
            drafts: Sequence[int] = ()
            if guided.drafts:
                guided.valid = matcher.valid_prefix(guided.drafts)
                drafts = guided.drafts[: guided.valid]
                if drafts and drafts[-1] in matcher.ends:
                    drafts = drafts[:-1]  # it may be accepted, and what follows the end is free
            guided.filled = 1 + len(drafts)
            if drafts:
                drafted.append((matcher.native, guided.row, drafts))
            else:
                single.append((matcher.native, guided.row))
        if drafted:
            llguidance_numpy.fill_next_token_bitmask_par_with_draft_tokens(self._executor, drafted, bitmask)
        if single:
            llguidance_numpy.fill_next_token_bitmask_par(self._executor, single, bitmask)
        for guided in batch:
            guided.matcher.check()
