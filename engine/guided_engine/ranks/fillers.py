"""How the masks of a step are filled: by each sequence's backend, and what it cannot fill by itself."""

from collections.abc import Callable, Sequence
from typing import Any

from guided_grammar.masks import FULL_MASK, Bitmask
from guided_grammar.walk import Walk

Fill = Callable[[Sequence[Walk[Any]], Bitmask], None]


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
    walk.valid = walk.filled = 0
    try:
        fill([walk], bitmask)
        _restrict([walk], bitmask)
    except Exception as error:  # noqa: BLE001 - see fill_walks
        walk.error = error
        walk.valid = walk.filled = 0
