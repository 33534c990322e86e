"""Reads the status page of each pod's sidecar: when the pod changed, and now and then. It is untrusted.

Pages are read between passes, a few of one namespace at a time, and those of silent pods apart from the rest:
who does not answer, or says much, costs their own namespace alone. A pass whose pods have changed comes again
with their pages, and then decides by what has been read: pods may change faster than that.
"""

import asyncio
import logging
import math
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from guided_contract import status
from guided_operator.kube.pod_view import PodView
from guided_operator.kube.queue import Key, WorkQueue
from guided_operator.watch.page_fetch import PageError

logger = logging.getLogger(__name__)

READY_PERIOD_S: Final = 180.0  # a ready pod's page changes seldom, and what matters changes its readiness
STARTING_PERIOD_S: Final = 15.0  # until all is well, somebody is waiting to read why not
MAX_NAMESPACE_BYTES: Final = 8 << 20
MAX_BYTES: Final = 48 << 20  # of all namespaces
# So many are read at a time: of a namespace, of all, and of pods that did not answer last time, each of which
# may take page_fetch.TIMEOUT_S again.
_READS_OF_NAMESPACE, _READS, _READS_OF_SILENT = 16, 512, 64
_NO_ROOM: Final = "the status pages of the pods of this namespace, or of all, are too large together"


@dataclass(frozen=True, slots=True)
class Page:
    """What one pod's sidecar said last; `status` None: nothing usable, `error` says why."""

    status: status.PodStatus | None
    error: str = ""


_UNREAD: Final = Page(None, "its status page has not been read yet")


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one pod's sidecar said: a page's bytes, and else why there is none."""

    data: bytes
    error: str
    version: str  # of the pod that said so
    due_s: float

    @property
    def page(self) -> Page:
        return Page(None, self.error) if self.error else Page(status.decode_own(self.data))


@dataclass(slots=True)
class _Followed:
    """One model's pods and what was read of them, by uid.

    `awaited`: a pass was put off until what is being read has come; `answered`: it has, and the pass comes.
    """

    grammars: frozenset[str] = frozenset()
    pods: dict[str, PodView] = field(default_factory=dict)
    readings: dict[str, _Reading] = field(default_factory=dict)
    awaited: bool = False
    answered: bool = False

    def unread(self) -> list[PodView]:
        """Return the pods that have changed since their pages were read."""
        return [pod for uid, pod in self.pods.items() if self._version(uid) != pod.version]

    def page(self, uid: str) -> Page:
        reading = self.readings.get(uid)
        return _UNREAD if reading is None else reading.page

    def _version(self, uid: str) -> str | None:
        reading = self.readings.get(uid)
        return None if reading is None else reading.version


Fetch = Callable[[str], Awaitable[bytes]]


class SidecarReader:
    """Remembers each pod's page and reads it again when due.

    Parameters
    ----------
    fetch
        Gets the page of the sidecar at an address; raises `PageError`.
    clock
        Monotonic seconds.
    enqueue
        Called with each model whose page says something else, or that waits for pages.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float], enqueue: Callable[[Key], None]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._enqueue = enqueue
        self._followed: dict[Key, _Followed] = {}
        self._due = WorkQueue(clock)
        self._reads = asyncio.Semaphore(_READS)
        self._reads_of_silent = asyncio.Semaphore(_READS_OF_SILENT)
        self._reads_of = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_READS_OF_NAMESPACE))
        self._held = Counter[str]()  # bytes of pages, by namespace

    def pages(
        self, key: Key, pods: Iterable[PodView], grammars: frozenset[str] = frozenset()
    ) -> Mapping[str, Page] | None:
        """Return the status page of each running pod of a model, by the pod's uid, and keep reading them.

        None: pods or `grammars` have changed, so pages are being read, and the model is queued again then.
        What has changed meanwhile has its former page, or none yet.

        Parameters
        ----------
        pods
            All pods of the model.
        grammars
            Names of the named grammars that should be loaded; until they are, a page is read again soon.
        """
        asked = {pod.uid: pod for pod in pods if pod.live and pod.ip and pod.phase == "Running"}
        if not asked:
            self.forget(key)
            return {}
        followed = self._followed.setdefault(key, _Followed())
        if followed.grammars != grammars:
            self._drop(key, followed, list(followed.readings))
            followed.answered = False
        self._drop(key, followed, [uid for uid in followed.readings if uid not in asked])
        followed.grammars, followed.pods = grammars, asked
        self._expect(key, followed)
        followed.awaited = bool(followed.unread()) and not followed.answered
        if followed.awaited:
            return None
        followed.answered = False
        return {uid: followed.page(uid) for uid in asked}

    def forget(self, key: Key) -> None:
        """Read no more of a model that is gone."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._drop(key, followed, list(followed.readings))

    async def run(self) -> None:
        """Read pages when they fall due, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._read_due(await self._due.take()))

    async def read_next(self) -> None:
        """Wait until pages of a model are due, and read those."""
        await self._read_due(await self._due.take())

    async def _read_due(self, key: Key) -> None:
        try:
            await self._look(key)
        except Exception:  # a fault of ours with one page must not keep the others from being read
            logger.exception("this is a bug; again in %.1f s", self._due.failed(key))
        except asyncio.CancelledError:  # for whoever reads next
            self._due.failed(key)
            raise
        else:
            self._due.done(key)

    async def _look(self, key: Key) -> None:
        followed = self._followed.get(key)
        if followed is None:
            return
        now, unread = self._clock(), followed.unread()
        new = {pod.uid for pod in unread}
        due = [
            followed.pods[uid]
            for uid, one in followed.readings.items()
            if one.due_s <= now and uid not in new
        ]
        changed = await asyncio.gather(*(self._read(key, followed, pod) for pod in (*unread, *due)))
        if followed.awaited or any(changed):
            followed.answered = followed.answered or followed.awaited
            followed.awaited = False
            self._enqueue(key)
        self._expect(key, followed)

    def _expect(self, key: Key, followed: _Followed) -> None:
        """Come again when the next of a model's pages is due."""
        due_s = min((reading.due_s for reading in followed.readings.values()), default=math.inf)
        if followed.unread():
            due_s = self._clock()
        if self._followed.get(key) is followed and due_s < math.inf:
            self._due.add(key, delay_s=due_s - self._clock())

    async def _read(self, key: Key, followed: _Followed, pod: PodView) -> bool:
        """Read a pod's page; return whether it says something else than before."""
        grammars = followed.grammars
        page, data, error = None, b"", ""
        last = followed.readings.get(pod.uid)
        all_of_them = self._reads_of_silent if last is not None and last.error else self._reads
        try:
            async with self._reads_of[key.namespace], all_of_them:
                raw = await self._fetch(pod.ip)
            page = status.decode(raw)
            data = status.encode(page)
        except (PageError, ValueError) as fault:
            error = str(fault)
        if (
            followed.grammars != grammars
            or pod.uid not in followed.pods
            or self._followed.get(key) is not followed
        ):
            return False  # another pass has come by since, and its pods are read
        last = followed.readings.get(pod.uid)
        self._drop(key, followed, [pod.uid] if last else [])
        if not self._has_room(key, data):
            page, data, error = None, b"", _NO_ROOM
        is_well = pod.ready and page is not None and _is_settled(page, grammars)
        due_s = self._due_s(READY_PERIOD_S if is_well else STARTING_PERIOD_S)
        followed.readings[pod.uid] = _Reading(data, error, pod.version, due_s)
        self._held[key.namespace] += len(data)
        return last is None or (last.data, last.error) != (data, error)

    def _has_room(self, key: Key, data: bytes) -> bool:
        most = min(MAX_NAMESPACE_BYTES - self._held[key.namespace], MAX_BYTES - self._held.total())
        return len(data) <= most

    def _drop(self, key: Key, followed: _Followed, uids: Iterable[str]) -> None:
        for uid in uids:
            self._held[key.namespace] -= len(followed.readings.pop(uid).data)

    def _due_s(self, period_s: float) -> float:
        """Return when a page should be read again: with others, for waking up costs as much as reading."""
        due_s = self._clock() + period_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        together_s = period_s / 20
        return math.ceil(due_s / together_s) * together_s


def _is_settled(page: status.PodStatus, grammars: frozenset[str]) -> bool:
    told = {one.name: one.state for one in page.grammars}
    return page.ready and told.keys() == grammars and all(state == "Ready" for state in told.values())
