"""Tasks that must live as long as their process: what they raise is logged and counted."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

_log = logging.getLogger(__name__)
_DELAY_S: Final = 1.0  # before one that failed runs again

failures: Final[Counter[str]] = Counter()  # of this process, by name; a name is here from its first start on


async def live(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run until `run` returns or this is cancelled; whatever it raises, it is called again.

    `name` is a metric's label: what one process calls so is a fixed set.
    """
    failures[name] += 0
    while True:
        try:
            return await run()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            _count(name, error)  # of something that it waited for
        except Exception as error:  # noqa: BLE001 - that is what this is for
            _count(name, error)
        await asyncio.sleep(_DELAY_S)


def _count(name: str, error: BaseException) -> None:
    failures[name] += 1
    _log.error("unexpected error in %s; restarting it", name, exc_info=error)


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
