"""The status page of each pod's sidecar, as read last. It is untrusted.

Each model's own task reads the pages of its pods, before its pass and not within: those of pods that have
changed, and each now and then. Who does not answer, or says much, makes nobody wait but its own model.
"""

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from guided_contract import status
from guided_operator.kube.key import Key
from guided_operator.kube.pod_view import PodView
from guided_operator.watch.page_fetch import PageError

READY_PERIOD_S: Final = 180.0  # a ready pod's page changes seldom, and what matters changes its readiness
STARTING_PERIOD_S: Final = 15.0  # until all is well, somebody is waiting to read why not
_READS: Final = 16  # at a time in a namespace; each may take page_fetch.TIMEOUT_S


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
    grammars: frozenset[str]
    due_s: float

    @property
    def page(self) -> Page:
        return Page(None, self.error) if self.error else Page(status.decode_own(self.data))


class SidecarReader:
    """Remembers each pod's page.

    Parameters
    ----------
    fetch
        Gets the page of the sidecar at an address; raises `PageError`.
    clock
        Monotonic seconds.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[bytes]], clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._readings: dict[Key, dict[str, _Reading]] = {}
        self._slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_READS))

    def pages(self, key: Key, pods: Iterable[PodView]) -> Mapping[str, Page]:
        """Return the status page of each running pod of a model, by the pod's uid."""
        readings = self._readings.get(key, {})
        return {pod.uid: readings[pod.uid].page if pod.uid in readings else _UNREAD for pod in running(pods)}

    def due_s(self, key: Key, pods: Iterable[PodView], grammars: frozenset[str] = frozenset()) -> float:
        """Return the seconds until a page is to be read, as `read` is asked; not above 0: now."""
        known = self._readings.get(key, {})
        due = (_due_s(known.get(pod.uid), pod, grammars) for pod in running(pods))
        return min(due, default=math.inf) - self._clock()

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._readings.pop(key, None)

    async def read(self, key: Key, pods: Iterable[PodView], grammars: frozenset[str] = frozenset()) -> bool:
        """Read the pages of a model's pods that are due; return whether any says something else than before.

        Parameters
        ----------
        pods
            All pods of the model.
        grammars
            Names of the named grammars that should be loaded; until they are, a page is read again soon.
        """
        asked, known = running(pods), self._readings.get(key, {})
        now_s = self._clock()
        due = [pod for pod in asked if _due_s(known.get(pod.uid), pod, grammars) <= now_s]
        found = await asyncio.gather(*(self._read(pod, grammars) for pod in due))
        read = {pod.uid: reading for pod, reading in zip(due, found, strict=True)}
        self._readings[key] = {pod.uid: read.get(pod.uid) or known[pod.uid] for pod in asked}
        return any(_said(known.get(uid)) != _said(reading) for uid, reading in read.items())

    async def _read(self, pod: PodView, grammars: frozenset[str]) -> _Reading:
        data, error, is_well = b"", "", False
        try:
            async with self._slots[pod.namespace]:
                raw = await self._fetch(pod.ip)
            page = status.decode(raw)
            data, is_well = status.encode(page), pod.ready and _is_settled(page, grammars)
        except (PageError, ValueError) as fault:
            error = str(fault)
        period_s = READY_PERIOD_S if is_well else STARTING_PERIOD_S
        due_s = self._clock() + period_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        return _Reading(data, error, pod.version, grammars, due_s)


def running(pods: Iterable[PodView]) -> list[PodView]:
    """Return the pods that may have a page."""
    return [pod for pod in pods if pod.live and pod.ip and pod.phase == "Running"]


def _due_s(last: _Reading | None, pod: PodView, grammars: frozenset[str]) -> float:
    """Return when a pod's page is to be read: at once if it was read of another state of the pod or model."""
    is_current = last is not None and (last.version, last.grammars) == (pod.version, grammars)
    return last.due_s if last is not None and is_current else -math.inf


def _said(reading: _Reading | None) -> tuple[bytes, str] | None:
    return None if reading is None else (reading.data, reading.error)


def _is_settled(page: status.PodStatus, grammars: frozenset[str]) -> bool:
    told = {one.name: one.state for one in page.grammars}
    return page.ready and told.keys() == grammars and all(state == "Ready" for state in told.values())
