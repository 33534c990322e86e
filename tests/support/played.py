"""An event loop whose time is played: where nobody has anything to do, it is later at once."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class _Selector(selectors.DefaultSelector):
    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.passed_s += timeout
        return ready


class PlayedLoop(asyncio.SelectorEventLoop):
    """`time` is that of all sleeps and deadlines so far; what other threads and processes do takes none."""

    def __init__(self) -> None:
        self._played = _Selector()
        super().__init__(self._played)

    def time(self) -> float:
        return self._played.passed_s


def played(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test in played time; its fixtures are not async."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def whole() -> None:
            await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=PlayedLoop) as runner:
            runner.run(whole())

    return run


async def settled() -> None:
    """Let all go on that can without time passing, for tests in real time."""
    for _ in range(50):
        await asyncio.sleep(0)
