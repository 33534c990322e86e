"""How the masks of a step are filled: all rows of all sequences at once, drafts included."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import llguidance
import llguidance.numpy as llguidance_numpy
import numpy as np
import xgrammar

from guided_engine.ranks.matchers import Bitmask, GuidanceMatcher, Matcher, XGrammarMatcher

FULL_MASK: Final = np.int32(-1)
_M = TypeVar("_M", bound=Matcher)


@dataclass(slots=True)
class Walk(Generic[_M]):
    """One sequence's part of a step: `rows` rows from `row` on, for the next token and after each draft.

    `drafts` are the drafts that are known, perhaps fewer than scheduled, never -1. Filling sets `filled`, the
    number of rows that hold masks, and `valid`, the number of leading drafts that may be accepted. The other
    rows are full, since no accepted draft reaches them or the grammar has ended.
    """

    matcher: _M
    row: int
    rows: int
    drafts: Sequence[int]
    valid: int = field(default=0, init=False)
    filled: int = field(default=0, init=False)
    error: Exception | None = field(default=None, init=False)

    @property
    def end(self) -> int:
        """Return the row after the last."""
        return self.row + self.rows


Fill = Callable[[Sequence[Walk[Any]], Bitmask], None]


class XGrammarFiller:
    """Fills level by level: one native call for all first rows, one for all first drafts, and so on."""

    def __init__(self) -> None:
        self._batch = xgrammar.BatchGrammarMatcher(max_threads=1)

    def fill(self, walks: Sequence[Walk[XGrammarMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        live = list(walks)
        level = 0
        try:
            while live:
                rows = [walk.row + level for walk in live]
                natives = [walk.matcher.native for walk in live]
                self._batch.batch_fill_next_token_bitmask(natives, bitmask, rows)
                for walk in live:
                    walk.filled = level + 1
                live = [walk for walk in live if _accept_draft(walk, level)]
                level += 1
        finally:
            for walk in walks:
                if walk.valid:
                    walk.matcher.native.rollback(walk.valid)


def _accept_draft(walk: Walk[XGrammarMatcher], level: int) -> bool:
    """Advance over the draft of one level; tell whether the row after it needs a mask."""
    if level >= len(walk.drafts):
        return False
    native = walk.matcher.native
    if not native.accept_token(walk.drafts[level]):
        return False
    walk.valid = level + 1
    return not native.is_terminated()


class GuidanceFiller:
    """Fills all rows of all sequences, drafts included, in one native call for each of two kinds of rows."""

    def __init__(self) -> None:
        self._executor = llguidance.LLExecutor(num_threads=1)

    def fill(self, walks: Sequence[Walk[GuidanceMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        single, drafted = [], []
        for walk in walks:
            native = walk.matcher.native
            walk.valid = walk.matcher.valid_prefix(walk.drafts)
            drafts = list(walk.drafts[: walk.valid])
            if drafts and drafts[-1] == walk.matcher.eos_token:
                drafts.pop()  # it may be accepted, and what follows the end is free
            walk.filled = 1 + len(drafts)
            if drafts:
                drafted.append((native, walk.row, drafts))
            else:
                single.append((native, walk.row))
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
    walk.valid = walk.filled = 0
    try:
        fill([walk], bitmask)
        _restrict([walk], bitmask)
    except Exception as error:  # noqa: BLE001 - see fill_walks
        walk.error = error
        walk.valid = walk.filled = 0
