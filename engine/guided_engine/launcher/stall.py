"""Tells from the heartbeats whether the engine still works. Pure but for the look at the process table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import psutil

from guided_contract.heartbeat import Beat

_NEVER: Final = Beat()


@dataclass(slots=True)
class StallWatch:
    """Follows the beats of one engine core, which may complete no step for so long, and of its workers.

    `is_alive` tells whether a pid is a living process.
    """

    stall_timeout_s: float
    is_alive: Callable[[int], bool] = field(default_factory=lambda: is_alive)
    _last: Beat = _NEVER
    _progress_ns: int = 0

    def verdict(self, beats: Iterable[Beat], now_ns: int) -> str:
        """Return what is wrong, "" if nothing. `beats`: the core's, then each worker's, by one clock."""
        beats = list(beats)
        gone = [place for place, beat in enumerate(beats) if beat.pid and not self.is_alive(beat.pid)]
        if gone:
            names = [f"rank {place - 1}" if place else "engine core" for place in gone]
            return f"{', '.join(names)} has ended"
        core = beats[0]
        # Its own step time is not asked: after an idle hour it is an hour old at the first request.
        if not core.busy or not self._last.busy or core.steps != self._last.steps:
            self._progress_ns = now_ns
        self._last = core
        stalled_s = (now_ns - self._progress_ns) / 1e9
        if stalled_s < self.stall_timeout_s:
            return ""
        waiting = f"the engine core has {core.busy} unfinished requests"
        return f"{waiting} and has completed no step for {stalled_s:.0f} s"


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False
