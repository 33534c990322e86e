"""One sequence's state in an llguidance grammar, and how llguidance fills the masks of a step."""

from collections.abc import Sequence
from typing import Any

import llguidance
import llguidance.numpy as llguidance_numpy

from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher, MatcherError
from guided_grammar.walk import Walk


class GuidanceMatcher(Matcher):
    """A matcher copied from the prototype of its key.

    As upstream, it ends at the tokenizer's end of sequence, which a matcher that has stopped does not see.
    """

    backend = "guidance"

    def __init__(self, prototype: Any, eos_token: int) -> None:
        super().__init__((eos_token,))
        self.native = prototype.deep_copy()

    def check(self) -> None:
        """Raise MatcherError if the native matcher is in its error state, where its masks mean nothing."""
        if self.native.is_error():
            said = self.native.get_error().partition("\n")[0]
            raise MatcherError("the llguidance matcher is in an error state", said)

    def _consume(self, tokens: Sequence[int]) -> bool:
        self.check()
        return bool(self.native.is_stopped() or self.native.consume_tokens(list(tokens)))

    def _count_valid(self, drafts: Sequence[int]) -> int:
        return 0 if self.native.is_stopped() else int(self.native.validate_tokens(list(drafts)))

    def _fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token: only the end-of-sequence token once stopped."""
        llguidance_numpy.fill_next_token_bitmask(self.native, bitmask, row)
        self.check()

    def _rewind(self) -> None:
        self.native.reset()


class GuidanceFiller:
    """Fills all rows of all sequences, drafts included, in one native call for each of two kinds of rows."""

    def __init__(self, threads: int) -> None:
        self._executor = llguidance.LLExecutor(num_threads=threads)

    def fill(self, walks: Sequence[Walk[GuidanceMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        single, drafted = [], []
        for walk in walks:
            matcher = walk.matcher
            drafts = walk.drafts
            if drafts:
                walk.valid = matcher.valid_prefix(drafts)
                drafts = drafts[: walk.valid]
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
        for walk in walks:
            walk.matcher.check()
