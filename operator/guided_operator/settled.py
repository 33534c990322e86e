"""Which GuidedModels need no pass: what was seen is what the last pass saw, and that one left nothing to do.

Pages of sidecars are read again every few minutes and mostly say what they said. A pass is pure but for its
writes, so one that wrote no child would, over the same, write nothing again; it is spared until the time
comes to look at everything anew.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from guided_operator.observe import Observed
from guided_operator.queue import Key

Object = dict[str, Any]


class _Last(NamedTuple):
    seen: int
    status: int
    due_s: float


class Settled:
    """Remembers what the last pass over each model saw and left.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[Key, _Last] = {}

    def rest_s(self, observed: Observed) -> float | None:
        """Return the seconds until a model needs a pass if nothing changes; None: it needs one now."""
        last = self._last.get(observed.key)
        if last is None or last[:2] != (_seen(observed), _hash(observed.model.get("status"))):
            return None
        rest_s = last.due_s - self._clock()
        return rest_s if rest_s > 0 else None

    def note(self, observed: Observed, status: Object | None, rest_s: float) -> None:
        """Note a pass that had no child to write, the status it left, and for how long it is the last."""
        self._last[observed.key] = _Last(_seen(observed), _hash(status), self._clock() + rest_s)

    def forget(self, key: Key) -> None:
        """Note that a model is gone, or that its last pass left something to do."""
        self._last.pop(key, None)


def _seen(observed: Observed) -> int:
    model = {field: value for field, value in observed.model.items() if field != "status"}
    rest = (observed.pages, observed.sources, observed.blind, sorted(observed.absent))
    return hash((observed.mark, _hash((model, rest))))


def _hash(value: Any) -> int:
    return hash(msgspec.json.encode(value, order="deterministic"))
