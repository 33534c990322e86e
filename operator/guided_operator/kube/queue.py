"""The work queue: keys that wait for a pass, each at most once, each handled by one worker at a time."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

FIRST_BACKOFF_S: Final = 0.5
# A fault that lasts is looked at once a minute: soon enough to recover by itself, too seldom to load anybody.
LAST_BACKOFF_S: Final = 60.0


class Key(NamedTuple):
    """Namespace and name of a GuidedModel."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a key waits after its nth failure in a row."""

    first_s: float = FIRST_BACKOFF_S
    last_s: float = LAST_BACKOFF_S

    def delay_s(self, failures: int) -> float:
        """Return the delay after `failures` >= 1 failures: doubling, up to `last_s`."""
        return float(min(self.first_s * 2.0 ** min(failures - 1, 30), self.last_s))


class WorkQueue:
    """Keys with something to do.

    A key added while it waits is not added twice; added while a worker has it, it comes again when that
    worker is done, so no event is lost and no key is handled twice at once. A key that falls due wakes one
    worker: most passes are short, and waking all of them would cost more than the pass.

    Parameters
    ----------
    clock
        Monotonic seconds.
    backoff
        Delays of failing keys.
    """

    def __init__(self, clock: Callable[[], float], backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._active: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._idle: list[asyncio.Future[Key]] = []  # of the workers that wait, the last to come first
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, key: Key, *, delay_s: float = 0.0) -> None:
        """Ask for a pass over `key` in `delay_s` seconds, or sooner if one is asked for sooner."""
        due = self._clock() + delay_s
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._put(key)

    async def take(self) -> Key:
        """Wait for a key that is due and that no other worker has; `done` or `failed` must follow."""
        waiter: asyncio.Future[Key] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        self._hand_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given a key at the moment of its end
                key = waiter.result()
                self._due.setdefault(key, self._clock())
                self._release(key)
            raise

    def done(self, key: Key) -> None:
        """Give `key` back after a pass that worked."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: Key, *, at_least_s: float = 0.0) -> float:
        """Give `key` back after a pass that failed; it comes again after the delay returned."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = max(self._backoff.delay_s(failures), at_least_s)
        self._release(key)
        self.add(key, delay_s=delay_s)
        return delay_s

    def waited_s(self, key: Key) -> float:
        """Return how long `key`, which a worker has, was due before it was taken."""
        return self._active[key]

    def depth(self) -> int:
        """Return how many keys are due and wait for a worker."""
        now = self._clock()
        return sum(due <= now for due in self._due.values())

    def __len__(self) -> int:
        return len(self._due)

    def _release(self, key: Key) -> None:
        del self._active[key]
        if key in self._due:  # rung meanwhile: put where _pop sees it again
            self._put(key)

    def _put(self, key: Key) -> None:
        heapq.heappush(self._heap, (self._due[key], next(self._order), key))
        self._hand_out()

    def _hand_out(self) -> None:
        """Give keys that are due to workers that wait, and come again when the next one is."""
        while self._idle:
            if self._idle[-1].cancelled():  # its worker ends
                self._idle.pop()
                continue
            key, wait_s = self._pop()
            if key is None:
                self._come_again(wait_s)
                return
            self._idle.pop().set_result(key)

    def _come_again(self, wait_s: float | None) -> None:
        if wait_s is None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + wait_s
        if self._alarm is not None:
            if self._alarm.when() <= when:  # soon enough, and harmless if too soon
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(when, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._hand_out()

    def _pop(self) -> tuple[Key | None, float | None]:
        """Return a due key, or None and the seconds until the next can be due (None: no key waits)."""
        now = self._clock()
        while self._heap:
            due, _, key = self._heap[0]
            stale = self._due.get(key) != due  # asked for sooner since, or handed out
            if not stale and due > now:
                return None, due - now
            heapq.heappop(self._heap)
            if not stale and key not in self._active:
                del self._due[key]
                self._active[key] = now - due
                return key, None
        return None, None
