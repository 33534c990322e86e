"""How long sampling waits for this rank's masks: what guided decoding adds to a step."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

_log = logging.getLogger(__name__)


class Waits:
    """Counts it on a CPU, where the forward pass is over when masks are made: all the time that they take.

    Attributes
    ----------
    total_ns
        Since the start.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._began_ns = 0

    def begin(self) -> None:
        """Note that from now on sampling could begin, but for us."""
        self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Note that from now on nothing of ours is waited for."""
        self.total_ns += time.perf_counter_ns() - self._began_ns


class Event(Protocol):
    """A moment in a device's own order of work, as torch.cuda.Event(enable_timing=True)."""

    def record(self) -> None:
        """Take the moment at which the device gets here."""

    def query(self) -> bool:
        """Return whether it has."""

    def elapsed_time(self, later: Any) -> float:
        """Return the milliseconds from here to another."""


class DeviceWaits(Waits):
    """Counts it on a GPU, which works on the forward pass meanwhile: the time between its end and the masks'.

    Never waits for the device: a step's figure is read in a later one. Never raises: a device that does not
    answer costs the figure, not the sequences.

    Parameters
    ----------
    make_event
        Makes an event on the stream that samples.
    """

    def __init__(self, make_event: Callable[[], Event]) -> None:
        super().__init__()
        self._make_event = make_event
        self._spare: list[tuple[Event, Event]] = []
        self._begun: tuple[Event, Event] | None = None
        self._pending: deque[tuple[Event, Event]] = deque()
        self._is_broken = False

    def begin(self) -> None:
        """Mark the device's way here."""
        self._safely(self._begin)

    def end(self) -> None:
        """Mark the device's way on."""
        self._safely(self._end)

    def _begin(self) -> None:
        while self._pending and self._pending[0][1].query():
            first, last = pair = self._pending.popleft()
            self.total_ns += round(first.elapsed_time(last) * 1e6)
            self._spare.append(pair)
        self._begun = self._spare.pop() if self._spare else (self._make_event(), self._make_event())
        self._begun[0].record()

    def _end(self) -> None:
        if self._begun is not None:
            self._begun[1].record()
            self._pending.append(self._begun)
            self._begun = None

    def _safely(self, mark: Callable[[], None]) -> None:
        if self._is_broken:
            return
        try:
            mark()
        except Exception:  # noqa: BLE001 - a driver's; what is measured goes on without the measure
            self._is_broken = True
            _log.warning("guidedmodel: exposed waits are not measured any more on this rank", exc_info=True)
