"""A fair queue for compile slots, in two lanes: first come first served, but every third to who came last.

Endless schemas do not hold up short ones until their deadline, however long they stay: each has a moment of
the fast lane, as those before it had. Where more come than there is time for, all would wait until their
deadline if the newest never went first. Whose they are nobody knows: all clients come through one API server,
and often through one gateway.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

_FAIR_SHARE: Final = 0.5
_MOST_PATIENCE: Final = 10  # times: a compile that is stuck uses no CPU at all
_OLDEST, _NEWEST = 0, -1


class Lane:
    """Places, and those that wait for one.

    Parameters
    ----------
    free
        Places that nobody has.
    """

    def __init__(self, free: int) -> None:
        self.free = free
        self._waiting: list[asyncio.Future[None]] = []
        self._turns = itertools.cycle((_OLDEST, _OLDEST, _NEWEST))

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits: who is cancelled, or has a place, may not have resumed yet."""
        return any(not place.done() for place in self._waiting)

    async def take(self) -> None:
        """Wait for a place."""
        if self.free:
            self.free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.give()
            raise
        finally:
            self._waiting.remove(place)

    def give(self) -> None:
        """Hand a place on."""
        waiting = [place for place in self._waiting if not place.done()]
        if waiting:
            waiting[next(self._turns)].set_result(None)
        else:
            self.free += 1


class Slot:
    """The right to compile, in one of two lanes; `lane` None: it was slow, and gave its place to another."""

    def __init__(self, fast: Lane, slow: Lane) -> None:
        self.lane: Lane | None = fast
        self._slow = slow
        self._on_lost: Callable[[], None] | None = None
        self._used_s: Callable[[], float] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it gave its place to another."""
        return self.lane is None

    @contextlib.contextmanager
    def watched(self, on_lost: Callable[[], None], used_s: Callable[[], float]) -> Iterator[None]:
        """Have `on_lost` called should the slot be lost within the body.

        `used_s` tells how many CPU seconds it has used: a slot that gets no CPU is not slow by itself.
        """
        self._on_lost, self._used_s = on_lost, used_s
        try:
            yield
        finally:
            self._on_lost = None

    def lose(self) -> None:
        """Give up its place; for FairQueue."""
        self.lane = None
        if self._on_lost is not None:
            self._on_lost()

    def has_used(self, share_s: float) -> bool:
        """Return whether it has used so many CPU seconds, as far as anybody knows."""
        return self._used_s is None or self._used_s() >= share_s

    async def again(self) -> None:
        """Wait for a place in the slow lane."""
        await self._slow.take()
        self.lane = self._slow


class FairQueue:
    """Slots to compile: `width` in the fast lane, and as many in the slow lane.

    A slow compile moves to the slow lane if that has room. If not, it stays until another compile waits for
    its slot; then it is stopped, and starts again in the slow lane when there is room.

    Parameters
    ----------
    width
        Slots of each lane, at least 1.
    slow_after_s
        Seconds after which a compile that has used half of them as CPU time counts as slow.
    """

    def __init__(self, width: int, slow_after_s: float) -> None:
        self.fast = Lane(width)
        self._slow = Lane(width)
        self._slow_after_s = slow_after_s
        self._overdue: list[Slot] = []  # slow, and still in the fast lane; the slowest first

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """Wait for a slot, and hold it for the body."""
        if not self.fast.free and self._overdue:
            self._push_out()
        await self.fast.take()
        slot = Slot(self.fast, self._slow)
        timer = asyncio.create_task(self._time(slot))
        try:
            yield slot
        finally:
            timer.cancel()
            self._leave(slot)

    def _push_out(self) -> None:
        """Free the slowest slot's place."""
        self._overdue.pop(0).lose()
        self.fast.give()

    async def _time(self, slot: Slot) -> None:
        """Wait until a compile is slow: it has had its time, and a fair share of a CPU in it."""
        for _ in range(_MOST_PATIENCE):
            await asyncio.sleep(self._slow_after_s)
            if slot.has_used(_FAIR_SHARE * self._slow_after_s):
                break
        if self._slow.free:
            await self._slow.take()
            slot.lane = self._slow
            self.fast.give()
            return
        self._overdue.append(slot)
        if self.fast.is_waited_for:
            self._push_out()

    def _leave(self, slot: Slot) -> None:
        if slot in self._overdue:
            self._overdue.remove(slot)
        if slot.lane is self._slow and self._overdue:  # before who is lost: it need not begin again
            self._overdue.pop(0).lane = self._slow
            self.fast.give()
        elif slot.lane is not None:
            slot.lane.give()
