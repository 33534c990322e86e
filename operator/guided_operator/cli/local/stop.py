"""What Ctrl-C, and the other signals that end a command, ask of `guidedmodel run`."""

import signal
import time
from types import FrameType
from typing import Self


class Stop:
    """Counts requests to stop while it is entered: the first ends the pod in order, the second kills it.

    The handler takes no lock (an Event has one): it runs in the main thread, between any two of its steps, so
    that it would wait for ever for a lock that this thread holds.
    """

    def __init__(self) -> None:
        self._asked = 0

    def __enter__(self) -> Self:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = [(number, signal.signal(number, self._count)) for number in numbers]
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1

    def is_asked(self) -> bool:
        """Return whether the pod is to end."""
        return self._asked > 0

    def is_hurried(self) -> bool:
        """Return whether it is to end at once."""
        return self._asked > 1

    def wait(self, timeout_s: float) -> bool:
        """Sleep; return whether it was asked for by then. A request does not end the sleep."""
        if not self.is_asked():
            time.sleep(timeout_s)
        return self.is_asked()
