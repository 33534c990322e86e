"""Reads the status page of each pod's sidecar: when the pod changed, and now and then. It is untrusted."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

from guided_contract import names, status
from guided_operator.pods import PodView

READY_PERIOD_S: Final = 180.0  # a ready pod's page changes seldom, and what matters changes its readiness
STARTING_PERIOD_S: Final = 15.0  # until all is well, somebody is waiting to read why not
TIMEOUT_S: Final = 2.0
MAX_PAGE_BYTES: Final = 256 << 10


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
    version: str
    grammars: frozenset[str]
    due_s: float


Fetch = Callable[[str], Awaitable[bytes]]


class SidecarReader:
    """Remembers each pod's page and reads it again when due.

    Parameters
    ----------
    fetch
        Gets the page of the sidecar at an address; raises `PageError`.
    clock
        Monotonic seconds.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._readings: dict[str, _Reading] = {}

    async def read(
        self, pods: Iterable[PodView], grammars: frozenset[str] = frozenset()
    ) -> Mapping[str, Page]:
        """Return the page of each running pod by the pod's uid, read now where it is due.

        A page is read again soon while these grammars, and no others, are not all in service there.
        """
        asked = [pod for pod in pods if pod.live and pod.ip and pod.phase == "Running"]
        await asyncio.gather(*(self._refresh(pod, grammars) for pod in asked if self._is_due(pod, grammars)))
        return {pod.uid: self._readings[pod.uid].page for pod in asked}

    def next_look_s(self, uids: Iterable[str]) -> float | None:
        """Return in how many seconds the next of these pods' pages is due; None without pods."""
        dues = [self._readings[uid].due_s for uid in uids if uid in self._readings]
        return max(min(dues) - self._clock(), 0.0) if dues else None

    def forget(self, kept: set[str], candidates: Iterable[str]) -> None:
        """Drop what is remembered of pods that are gone."""
        for uid in candidates:
            if uid not in kept:
                self._readings.pop(uid, None)

    def _is_due(self, pod: PodView, grammars: frozenset[str]) -> bool:
        last = self._readings.get(pod.uid)
        if last is None or (last.version, last.grammars) != (pod.version, grammars):
            return True
        return last.due_s <= self._clock()

    async def _refresh(self, pod: PodView, grammars: frozenset[str]) -> None:
        try:
            page = Page(status.decode(await self._fetch(pod.ip)))
        except (PageError, ValueError) as error:
            page = Page(None, str(error))
        healthy = pod.ready and page.status is not None and _is_settled(page.status, grammars)
        period_s = READY_PERIOD_S if healthy else STARTING_PERIOD_S
        due_s = self._clock() + period_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        self._readings[pod.uid] = _Reading(page, pod.version, grammars, due_s)


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
                        raise PageError(f"the sidecar's page is larger than {MAX_PAGE_BYTES} bytes")
                return bytes(data)
        except (aiohttp.ClientError, OSError) as error:
            raise PageError(f"the sidecar did not answer: {type(error).__name__}") from error
