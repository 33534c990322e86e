"""A fair queue for compile slots, in two lanes: endless schemas, however many, do not hold up short ones.

Of those that wait for the fast lane the newest goes first, and every third time the smallest. A burst of
endless ones then holds up those alone that are larger and came before it, which are few.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, Literal

_Future = asyncio.Future[None]
_FAIR_SHARE: Final = 0.5
_MOST_PATIENCE: Final = 10  # times: a compile that is stuck uses no CPU at all


class Slot:
    """The right to compile, in one of the two lanes.

    Attributes
    ----------
    is_lost
        It was slow and gave its place to another; `again` waits for one in the slow lane.
    """

    def __init__(self, queue: "FairQueue") -> None:
        self.is_lost = False
        self.lane: Literal["fast", "slow"] | None = "fast"
        self._queue = queue
        self._on_lost: Callable[[], None] | None = None
        self._used_s: Callable[[], float] | None = None

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
        self.is_lost = True
        if self._on_lost is not None:
            self._on_lost()

    def has_used(self, share_s: float) -> bool:
        """Return whether it has used so many CPU seconds, as far as anybody knows."""
        return self._used_s is None or self._used_s() >= share_s

    async def again(self) -> None:
        """Wait for a place in the slow lane, first come first served."""
        await self._queue.wait_for_slow()
        self.lane = "slow"
        self.is_lost = False


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
        self.fast = 0
        self._slow = 0
        self._width: Final = width
        self._slow_after_s = slow_after_s
        self._new = _Line((_newest, _newest, _smallest))  # wait for the fast lane
        self._lost = _Line((_oldest,))  # wait for the slow lane
        self._overdue: list[Slot] = []  # slow, and still in the fast lane; the slowest first

    @contextlib.asynccontextmanager
    async def slot(self, size: int) -> AsyncIterator[Slot]:
        """Wait for a slot, and hold it for the body.

        Parameters
        ----------
        size
            Of the grammar's text, in characters: small ones are seldom the slow ones.
        """
        await self._enter(size)
        slot = Slot(self)
        timer = asyncio.create_task(self._time(slot))
        try:
            yield slot
        finally:
            timer.cancel()
            self._leave(slot)

    async def wait_for_slow(self) -> None:
        """Wait for a place in the slow lane."""
        if self._slow < self._width:
            self._slow += 1
            return
        await self._lost.wait(0, self._leave_slow)

    async def _enter(self, size: int) -> None:
        if self.fast < self._width:
            self.fast += 1
            return
        if self._overdue:
            self._push_out()
        else:
            await self._new.wait(size, self._leave_fast)

    def _push_out(self) -> None:
        """Take the slowest slot's place, for whoever asks."""
        self._overdue.pop(0).lose()

    async def _time(self, slot: Slot) -> None:
        """Wait until a compile is slow: it has had its time, and a fair share of a CPU in it."""
        for _ in range(_MOST_PATIENCE):
            await asyncio.sleep(self._slow_after_s)
            if slot.has_used(_FAIR_SHARE * self._slow_after_s):
                break
        self._is_slow(slot)

    def _is_slow(self, slot: Slot) -> None:
        if self._slow < self._width:
            self._slow += 1
            slot.lane = "slow"
            self._leave_fast()
            return
        self._overdue.append(slot)
        if self._new.is_waited_in:
            self._push_out()
            self._leave_fast()

    def _leave(self, slot: Slot) -> None:
        if slot in self._overdue:
            self._overdue.remove(slot)
        if slot.lane == "slow":
            self._leave_slow()
        elif slot.lane == "fast":
            self._leave_fast()

    def _leave_fast(self) -> None:
        if not self._new.hand_on():
            self.fast -= 1

    def _leave_slow(self) -> None:
        if self._overdue:  # before who is lost: it need not begin again
            self._overdue.pop(0).lane = "slow"
            self._leave_fast()
        elif not self._lost.hand_on():
            self._slow -= 1


class _Line:
    """Those that wait for a place, the oldest first; `turns` say in turn who of them is next."""

    def __init__(self, turns: Sequence[Callable[[dict[_Future, int]], _Future]]) -> None:
        self._sizes: dict[_Future, int] = {}
        self._turns = itertools.cycle(turns)

    @property
    def is_waited_in(self) -> bool:
        """Whether somebody waits: who is cancelled, or has a place, may not have resumed yet."""
        return any(not place.done() for place in self._sizes)

    async def wait(self, size: int, give_back: Callable[[], None]) -> None:
        """Wait for a place; who is cancelled as the place is given gives it back."""
        place: _Future = asyncio.get_running_loop().create_future()
        self._sizes[place] = size
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                give_back()
            raise
        finally:
            del self._sizes[place]

    def hand_on(self) -> bool:
        """Give a place to who is next; False: nobody waits."""
        waiting = {place: size for place, size in self._sizes.items() if not place.done()}
        if waiting:
            next(self._turns)(waiting).set_result(None)
        return bool(waiting)


def _smallest(waiting: dict[_Future, int]) -> _Future:
    return min(waiting, key=waiting.__getitem__)


def _newest(waiting: dict[_Future, int]) -> _Future:
    return next(reversed(waiting))


def _oldest(waiting: dict[_Future, int]) -> _Future:
    return next(iter(waiting))
