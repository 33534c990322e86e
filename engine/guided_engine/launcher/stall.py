"""Tells from the heartbeats whether the engine still works. Pure but for the look at the process table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from guided_contract.heartbeat import Beat

_NEVER: Final = Beat(0, 0, 0, 0, 0)


@dataclass(slots=True)
class HealthWatch:
    """Follows vLLM's /health from its first good answer on.

    Parameters
    ----------
    stall_timeout_s
        Seconds without a good answer after which the API server's event loop counts as hanging.
    """

    stall_timeout_s: float
    _good_ns: int | None = None

    @property
    def started(self) -> bool:
        """Whether /health has answered 200 once."""
        return self._good_ns is not None

    def verdict(self, *, good: bool, now_ns: int) -> str:
        """Return what is wrong, "" if nothing.

        `good`: /health has just answered 200. `now_ns` is monotonic.
        """
        if good:
            self._good_ns = now_ns
        if self._good_ns is None or (silent_s := (now_ns - self._good_ns) / 1e9) < self.stall_timeout_s:
            return ""
        return f"vLLM's /health has not answered 200 for {silent_s:.0f} s"


@dataclass(slots=True)
class StallWatch:
    """Follows the beats of one engine core and its workers.

    Parameters
    ----------
    stall_timeout_s
        Seconds for which a busy core may complete no step.
    is_alive
        Whether a pid is a living process; replaced in tests.
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
            return f"{', '.join(names)} has gone"
        core = beats[0]
        # The core was idle at the last look, or has made a step since. Its own step time is not asked: after
        # an idle hour it is an hour old at the first request.
        if not core.busy or not self._last.busy or core.steps != self._last.steps:
            self._progress_ns = now_ns
        self._last = core
        stalled_s = (now_ns - self._progress_ns) / 1e9
        if stalled_s >= self.stall_timeout_s:
            return (
                f"the engine core has {core.busy} unfinished requests and has completed no step "
                f"for {stalled_s:.0f} s"
            )
        return ""


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # a process may have any bytes for its name
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
