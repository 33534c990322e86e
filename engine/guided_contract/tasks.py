"""Tasks and threads that must live as long as their process.

What one of them raises, foreseen by nobody, is logged and counted, and it begins again after a while.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

_log = logging.getLogger(__name__)
_FIRST_DELAY_S: Final = 0.1
_MOST_DELAY_S: Final = 5.0
_LASTED_S: Final = 60.0  # what lived for so long began well, and its next failure is news

failures: Final[Counter[str]] = Counter()  # of this process, by name; a name is here from its first start on


class _Life:
    """One task or thread through its failures."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._in_a_row = 0
        self._told = ""
        self._began_s = 0.0
        failures[name] += 0

    def begin(self) -> None:
        self._began_s = time.monotonic()

    def failed(self, error: BaseException) -> float:
        """Count a failure, tell of it if it is not the last one again, and return the seconds to wait."""
        if time.monotonic() - self._began_s >= _LASTED_S:
            self._in_a_row, self._told = 0, ""
        self._in_a_row += 1
        failures[self._name] += 1
        if repr(error) != self._told:
            self._told = repr(error)
            _log.error("%s failed in a way that nobody foresaw, and begins again", self._name, exc_info=error)
        return float(min(_FIRST_DELAY_S * 2.0 ** min(self._in_a_row - 1, 30), _MOST_DELAY_S))


async def live(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run until `run` returns or this is cancelled; whatever it raises, it is called again.

    `name` is a metric's label: what one process calls so is a fixed set.
    """
    life = _Life(name)
    task = asyncio.current_task()
    while True:
        life.begin()
        try:
            await run()
        except asyncio.CancelledError as error:
            if task is None or task.cancelling():
                raise
            delay_s = life.failed(error)  # of something that it waited for
        except Exception as error:  # noqa: BLE001 - that is what this is for
            delay_s = life.failed(error)
        else:
            return
        await asyncio.sleep(delay_s)


def live_in_thread(name: str, run: Callable[[], None], stopped: threading.Event) -> None:
    """Do the same in this thread, until `run` returns or `stopped` is set."""
    life = _Life(name)
    while not stopped.is_set():
        life.begin()
        try:
            run()
        except Exception as error:  # noqa: BLE001 - that is what this is for
            stopped.wait(life.failed(error))
        else:
            return


class Living:
    """A task that lives from `start` to `stop`; see `live`."""

    def __init__(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(live(self._name, self._run), name=self._name)

    def cancel(self) -> None:
        """End soon; harmless where it has not begun, or has ended."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """End, and wait for it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
