"""How long sampling waits for this rank's masks: what guided decoding adds to a step."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any


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


class DeviceWaits(Waits):
    """Counts it on a GPU, which works on the forward pass meanwhile: the time between its end and the masks'.

    Never waits for the device: a step's figure is read in a later one.

    Parameters
    ----------
    make_event
        Makes an event on the stream that samples, as torch.cuda.Event(enable_timing=True).
    """

    def __init__(self, make_event: Callable[[], Any]) -> None:
        super().__init__()
        self._make_event = make_event
        self._begun: Any = None
        self._pending: deque[tuple[Any, Any]] = deque()

    def begin(self) -> None:
        """Mark the device's way here."""
        self._begun = self._mark()

    def end(self) -> None:
        """Mark the device's way on."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._pending.append((begun, self._mark()))

    def _mark(self) -> Any:
        """Return a moment in the device's own order of work, and read those that it has passed."""
        while self._pending and self._pending[0][1].query():
            first, last = self._pending.popleft()
            self.total_ns += round(first.elapsed_time(last) * 1e6)
        event = self._make_event()
        event.record()
        return event
