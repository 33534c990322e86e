"""Turns to compile, in two lanes, so that one endless schema keeps no short one waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Lanes:
    """Turns to compile: `width` in the fast lane; one that lasts moves to the slow lane while that has room.

    Parameters
    ----------
    width
        Of each lane.
    slow_after_s
        When a turn counts as slow.
    """

    def __init__(self, width: int, slow_after_s: float) -> None:
        self.fast = 0
        self._slow = 0
        self._width = width
        self._slow_after_s = slow_after_s
        self._turns = asyncio.Semaphore(width)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, first come first served, and hold it for the body."""
        await self._turns.acquire()
        self.fast += 1
        moved = False

        def move() -> None:
            nonlocal moved
            if self._slow < self._width:
                moved = True
                self._slow += 1
                self._leave_fast()

        timer = asyncio.get_running_loop().call_later(self._slow_after_s, move)
        try:
            yield
        finally:
            timer.cancel()
            if moved:
                self._slow -= 1
            else:
                self._leave_fast()

    def _leave_fast(self) -> None:
        self.fast -= 1
        self._turns.release()
