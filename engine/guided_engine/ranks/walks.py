"""How the masks of a step are filled: all rows of all sequences at once, drafts included."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import llguidance
import llguidance.numpy as llguidance_numpy
import numpy as np
import xgrammar

from guided_engine.ranks.matchers import GuidanceMatcher, Matcher, XGrammarMatcher
from guided_engine.ranks.strings import Bitmask, allows

FULL_MASK: Final = np.int32(-1)
_M = TypeVar("_M", bound=Matcher)


@dataclass(slots=True)
class Walk(Generic[_M]):
    """One sequence's part of a step: `rows` rows from `row` on, for the next token and after each draft.

    `drafts` are the drafts that are known, perhaps fewer than scheduled, never -1. Filling sets `filled`, the
    number of rows that hold masks (`reused` of them copies of a mask known before), and `valid`, the number
    of leading drafts that may be accepted. The other rows are full, since no accepted draft reaches them or
    the grammar has ended.
    """

    matcher: _M
    row: int
    rows: int
    drafts: Sequence[int]
    valid: int = field(default=0, init=False)
    filled: int = field(default=0, init=False)
    reused: int = field(default=0, init=False)
    error: Exception | None = field(default=None, init=False)

    @property
    def end(self) -> int:
        """Return the row after the last."""
        return self.row + self.rows


Fill = Callable[[Sequence[Walk[Any]], Bitmask], None]


class XGrammarFiller:
    """Fills level by level: one native call for all first rows, one for all first drafts, and so on.

    Rows inside a plain string are copies of one mask, without a native call: see guided_engine.ranks.strings.

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
        return not walk.matcher.ends_at(draft)


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
            if drafts and drafts[-1] == matcher.eos_token:
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


def fill_walks(walks: Sequence[Walk[Any]], bitmask: Bitmask, fill: Fill) -> None:
    """Fill every row of `walks`, all of one backend. Never raises: a failure stays in its walk's `error`."""
    live = [walk for walk in walks if not walk.matcher.is_terminated()]
    try:
        if live:
            fill(live, bitmask)
            _restrict(live, bitmask)
    except Exception:  # noqa: BLE001 - whatever a native library raises; one by one shows whose fault it is
        for walk in live:
            _fill_alone(walk, bitmask, fill)
    for walk in walks:
        if walk.filled < walk.rows:
            if walk.matcher.is_terminated():
                walk.valid = len(walk.drafts)
            bitmask[walk.row + walk.filled : walk.end] = FULL_MASK


def _restrict(walks: Sequence[Walk[Any]], bitmask: Bitmask) -> None:
    """Take what counted bounds forbid out of the filled rows, and the drafts that break one."""
    for walk in walks:
        counted = walk.matcher.counted
        if counted is not None:
            rows = bitmask[walk.row : walk.row + walk.filled]
            walk.valid = counted.restrict(rows, walk.drafts[: walk.valid])
            walk.filled = min(walk.filled, 1 + walk.valid)


def _fill_alone(walk: Walk[Any], bitmask: Bitmask, fill: Fill) -> None:
    walk.valid = walk.filled = walk.reused = 0
    try:
        fill([walk], bitmask)
        _restrict([walk], bitmask)
    except Exception as error:  # noqa: BLE001 - see fill_walks
        walk.error = error
        walk.valid = walk.filled = walk.reused = 0
