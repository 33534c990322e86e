"""How xgrammar fills the masks of a step: all rows of all sequences, drafts included."""

from collections.abc import Sequence

import xgrammar

from guided_grammar.masks import Bitmask, allows
from guided_grammar.walk import Walk
from guided_grammar.xgrammar.matcher import XGrammarMatcher


class XGrammarFiller:
    """Fills level by level: one native call for all first rows, one for all first drafts, and so on.

    Rows inside a plain string are copies of one mask, without a native call: see strings.

    Parameters
    ----------
    threads
        How many threads fill the rows of a level.
    """

    def __init__(self, threads: int) -> None:
        self._batch = xgrammar.BatchGrammarMatcher(max_threads=threads)

    def fill(self, walks: Sequence[Walk[XGrammarMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        climbs = [_Climb(walk) for walk in walks]
        try:
            live = [climb for climb in climbs if climb.copy_string(bitmask)]
            while live:
                self._batch.batch_fill_next_token_bitmask(
                    [climb.walk.matcher.native for climb in live], bitmask, [climb.row for climb in live]
                )
                live = [climb for climb in live if climb.go_on(bitmask) and climb.copy_string(bitmask)]
        finally:
            for climb in climbs:
                climb.come_back()


class _Climb:
    """One xgrammar matcher's way along its drafts.

    `level` of them lie behind; the native matcher has `accepted` those that are not within a plain string.
    """

    __slots__ = ("accepted", "level", "string_mask", "walk")

    def __init__(self, walk: Walk[XGrammarMatcher]) -> None:
        self.walk = walk
        self.level = 0
        self.accepted = 0
        self.string_mask = walk.matcher.start_walk()

    @property
    def row(self) -> int:
        """Return the row of this level."""
        return self.walk.row + self.level

    def copy_string(self, bitmask: Bitmask) -> bool:
        """Write the rows for which the string's mask is known; tell whether a row is to be filled after."""
        mask = self.string_mask
        if mask is None:
            return True
        walk = self.walk
        drafts = walk.drafts
        plain, begin = walk.matcher.plain_tokens, self.level
        end = begin
        while end < len(drafts) and drafts[end] in plain:
            end += 1
        bitmask[walk.row + begin : walk.row + end + 1] = mask
        walk.reused += end + 1 - walk.filled
        self.level = walk.valid = end
        walk.filled = end + 1
        if end == len(drafts) or not allows(mask, drafts[end]):
            return False
        self.string_mask = None
        return self._accept_next()

    def go_on(self, bitmask: Bitmask) -> bool:
        """Take note of the row that was filled; tell whether rows after it are wanted."""
        walk = self.walk
        walk.filled = self.level + 1
        # The last row is the first one of the next step if all drafts are accepted.
        self.string_mask = walk.matcher.keep_if_string(walk.drafts[: self.level], bitmask[self.row])
        if self.level == len(walk.drafts):
            return False
        return self.string_mask is not None or self._accept_next()

    def come_back(self) -> None:
        """Take the native matcher back to where it was."""
        if self.accepted:
            self.walk.matcher.native.rollback(self.accepted)

    def _accept_next(self) -> bool:
        """Advance over the next draft; tell whether the row after it needs a mask."""
        walk = self.walk
        draft = walk.drafts[self.level]
        if not walk.matcher.native.accept_token(draft):
            return False
        self.accepted += 1
        self.level = walk.valid = self.level + 1
        return draft not in walk.matcher.ends
