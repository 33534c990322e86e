"""Reads the status page of each pod's sidecar: when the pod changed, and now and then. It is untrusted.

Pages that fall due are read between passes, since most are unchanged: only one that differs queues its model.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from guided_contract import names, status
from guided_operator.kube.pod_view import PodView
from guided_operator.kube.queue import Key, WorkQueue

logger = logging.getLogger(__name__)

READY_PERIOD_S: Final = 180.0  # a ready pod's page changes seldom, and what matters changes its readiness
STARTING_PERIOD_S: Final = 15.0  # until all is well, somebody is waiting to read why not
TIMEOUT_S: Final = 2.0
MAX_PAGE_BYTES: Final = 256 << 10
_READERS: Final = 16  # a page that does not come holds one for TIMEOUT_S


class PageError(Exception):
    """The sidecar's page could not be had, or is not one."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one pod's sidecar said last; `status` None: nothing usable, `error` says why."""

    status: status.PodStatus | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Reading:
    page: Page
    mark: int  # of what the page was made from
    version: str
    due_s: float


@dataclass(slots=True)
class _Followed:
    """One model's pods and what was read of them, by uid."""

    grammars: frozenset[str] = frozenset()
    pods: dict[str, PodView] = field(default_factory=dict)
    readings: dict[str, _Reading] = field(default_factory=dict)


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
        Called with each model whose page says something else.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float], enqueue: Callable[[Key], None]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._enqueue = enqueue
        self._followed: dict[Key, _Followed] = {}
        self._due = WorkQueue(clock)

    async def read(
        self, key: Key, pods: Iterable[PodView], grammars: frozenset[str] = frozenset()
    ) -> Mapping[str, Page]:
        """Return the status page of each running pod of a model, by the pod's uid, and keep reading them.

        A page is read now if its pod or `grammars` have changed since it was last read.

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
        kept = followed.readings if followed.grammars == grammars else {}
        followed.grammars, followed.pods = grammars, asked
        followed.readings = {uid: reading for uid, reading in kept.items() if uid in asked}
        new = [pod for uid, pod in asked.items() if uid not in kept or kept[uid].version != pod.version]
        await self._refresh(followed, new)
        self._expect(key, followed)
        return {uid: followed.readings[uid].page for uid in asked}

    def forget(self, key: Key) -> None:
        """Read no more of a model that is gone."""
        self._followed.pop(key, None)

    async def run(self) -> None:
        """Read pages when they fall due, for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_READERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self.read_next()

    async def read_next(self) -> None:
        """Wait until pages of a model are due, and read those."""
        key = await self._due.take()
        try:
            await self._look(key)
        except Exception:  # a fault of ours with one page must not keep the others from being read
            logger.exception("this is a bug; again in %.1f s", self._due.failed(key))
        else:
            self._due.done(key)

    async def _look(self, key: Key) -> None:
        followed = self._followed.get(key)
        if followed is None:
            return
        now, before = self._clock(), followed.readings
        due = [pod for uid, pod in followed.pods.items() if uid in before and before[uid].due_s <= now]
        marks = {pod.uid: before[pod.uid].mark for pod in due}
        await self._refresh(followed, due)
        after = followed.readings
        if any(uid in after and after[uid].mark != mark for uid, mark in marks.items()):
            self._enqueue(key)
        self._expect(key, followed)

    def _expect(self, key: Key, followed: _Followed) -> None:
        """Come again when the next of a model's pages is due."""
        due_s = min((reading.due_s for reading in followed.readings.values()), default=None)
        if due_s is not None:
            self._due.add(key, delay_s=due_s - self._clock())

    async def _refresh(self, followed: _Followed, pods: Iterable[PodView]) -> None:
        await asyncio.gather(*(self._read(followed, pod) for pod in pods))

    async def _read(self, followed: _Followed, pod: PodView) -> None:
        grammars, last = followed.grammars, followed.readings.get(pod.uid)
        try:
            data = await self._fetch(pod.ip)
            mark = hash(data)
            page = last.page if last is not None and last.mark == mark else Page(status.decode(data))
        except (PageError, ValueError) as error:
            page = Page(None, str(error))
            mark = hash(page.error)
        if followed.grammars != grammars or pod.uid not in followed.pods:
            return  # another pass has come by since, and reads it itself
        healthy = pod.ready and page.status is not None and _is_settled(page.status, grammars)
        period_s = READY_PERIOD_S if healthy else STARTING_PERIOD_S
        followed.readings[pod.uid] = _Reading(page, mark, pod.version, self._due_s(period_s))

    def _due_s(self, period_s: float) -> float:
        """Return when a page should be read again: with others, for waking up costs as much as reading."""
        due_s = self._clock() + period_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        together_s = period_s / 20
        return math.ceil(due_s / together_s) * together_s


def _is_settled(page: status.PodStatus, grammars: frozenset[str]) -> bool:
    told = {one.name: one.state for one in page.grammars}
    return page.ready and told.keys() == grammars and all(state == "Ready" for state in told.values())


class HttpFetch:
    """The real `Fetch`: one bounded GET.

    Parameters
    ----------
    session
        Shared by all reads; the caller closes it.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, address: str) -> bytes:
        """Return the page of the sidecar at an IP address.

        Raises
        ------
        PageError
            No answer in time, not 200, or too large.
        """
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{names.SIDECAR_PORT}/status"
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            # Never followed elsewhere: the pod must not choose what the operator asks.
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                if response.status != 200:
                    raise PageError(f"the sidecar answered {response.status}")
                data = bytearray()
                async for chunk in response.content.iter_any():
                    data += chunk
                    if len(data) > MAX_PAGE_BYTES:
                        raise PageError(f"the sidecar's status page is larger than {MAX_PAGE_BYTES} bytes")
                return bytes(data)
        except (aiohttp.ClientError, OSError) as error:
            raise PageError(f"the sidecar did not answer: {type(error).__name__}") from error
