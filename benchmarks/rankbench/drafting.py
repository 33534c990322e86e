"""Who chooses an engine's number of draft tokens, and how many batches it takes until a choice is settled."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from guided_operator.builders.arguments import schedule_by_load
from rankbench.cells import Cell, Mode
from rankbench.protocol import Failed, Served

HAND_UP_TO: Final = 32  # sequences that speculate in the schedule by hand
_SETTLED: Final = 0.9  # of a batch's steps that have one number of draft tokens
_MOST_UNTIMED: Final = 20


class Chosen(NamedTuple):
    """What an engine came to."""

    drafts: int
    untimed: int  # batches until then


def of(cell: Cell, mode: Mode, largest: int) -> dict[str, Any]:
    """Return what an EngineSpec says of draft tokens, for batches of up to `largest` sequences."""
    drafts = cell.drafts
    match mode.drafting:
        case None:
            schedule = [(1, largest, cell.scheduled)] if cell.dropped else []
            return {"drafts": drafts, "scheduled": cell.scheduled, "schedule": schedule}
        case "auto":
            # As the operator writes it for numTokens: Auto.
            schedule = [(first, last, number) for first, last, number in schedule_by_load(drafts, largest)]
            return {"drafts": drafts, "scheduled": drafts, "schedule": schedule, "is_by_load": True}
        case "hand":
            schedule = [(1, HAND_UP_TO, drafts), (HAND_UP_TO + 1, HAND_UP_TO + 1, 0)]
            return {"drafts": drafts, "scheduled": drafts, "schedule": schedule}
        case always:
            return {"drafts": always, "scheduled": always}


def settled(serve: Callable[[], Served | Failed]) -> Chosen | Failed:
    """Serve batches until two of them, one behind the other, had the same number in nearly all steps.

    The steps are those that a rank saw: a number that is tried for a while is among them.
    """
    before: int | None = None
    for untimed in range(1, _MOST_UNTIMED + 1):
        served = serve()
        if isinstance(served, Failed):
            return served
        asked = served.ranks[0].asked
        most = max(asked, key=lambda number: asked[number])
        now = most if asked[most] >= _SETTLED * sum(asked.values()) else None
        if now is not None and now == before:
            return Chosen(now, untimed)
        before = now
    return Failed(reason=f"no number of draft tokens was settled in {_MOST_UNTIMED} batches")
