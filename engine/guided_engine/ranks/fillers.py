"""How the masks of a step are filled: by each sequence's backend, and what it cannot fill by itself."""

from collections.abc import Callable, Sequence
from typing import Any

from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import FULL_MASK, Bitmask

Fill = Callable[[Sequence[GuidedRows[Any]], Bitmask], None]


def fill_batch(batch: Sequence[GuidedRows[Any]], bitmask: Bitmask, fill: Fill) -> None:
    """Fill every row of `batch`, all of one backend. Never raises: a failure stays in `error` of its rows."""
    live = [guided for guided in batch if not guided.matcher.is_terminated()]
    try:
        if live:
            fill(live, bitmask)
            _restrict(live, bitmask)
    except Exception:  # noqa: BLE001 - whatever a native library raises; one by one shows whose fault it is
        for guided in live:
            _fill_alone(guided, bitmask, fill)
    for guided in batch:
        if guided.filled < guided.rows:
            if guided.matcher.is_terminated():
                guided.valid = len(guided.drafts)
            bitmask[guided.row + guided.filled : guided.end] = FULL_MASK


def _restrict(batch: Sequence[GuidedRows[Any]], bitmask: Bitmask) -> None:
    """Take what counted bounds forbid out of the filled rows, and the drafts that break one."""
    for guided in batch:
        counted = guided.matcher.counted
        if counted is not None:
            rows = bitmask[guided.row : guided.row + guided.filled]
            guided.valid = counted.restrict(rows, guided.drafts[: guided.valid])
            guided.filled = min(guided.filled, 1 + guided.valid)


def _fill_alone(guided: GuidedRows[Any], bitmask: Bitmask, fill: Fill) -> None:
    guided.valid = guided.filled = 0
    try:
        fill([guided], bitmask)
        _restrict([guided], bitmask)
    except Exception as error:  # noqa: BLE001 - see fill_batch
        guided.error = error
        guided.valid = guided.filled = 0
