"""A small list-and-watch: keeps the store like the cluster, for one kind.

After a lost watch it lists again and replaces what it knew, so a deletion that nobody reported is not
missed. A kind that is forbidden, or whose API is not installed, is remembered as such and tried again now
and then; the rest goes on.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from guided_operator.kube.apiserver import (
    AccessForbidden,
    Api,
    ApiError,
    Object,
    ObjectNotFound,
    ServerUnavailable,
    WatchExpired,
)
from guided_operator.kube.kinds import Kind
from guided_operator.kube.queue import Backoff, Key
from guided_operator.kube.store import Name, name_of

logger = logging.getLogger(__name__)

# A watch ends by itself so often: bounds how long a connection that died silently goes unnoticed.
WATCH_S: Final = 150.0
_WATCH_GRACE_S: Final = 10.0  # the server ends it first
_FORBIDDEN_RETRY_S: Final = 60.0  # somebody has to grant a right first
_ABSENT_RETRY_S: Final = 10.0  # somebody has to install the API first, and then waits for us
PAGE_OBJECTS: Final = 100  # every kind is listed at once: a page of each is parsed, and in memory, together
_LIST_TIMEOUT_S: Final = 60.0
_TOO_SHORT_S: Final = 1.0  # a watch that ends sooner, though by itself, is a server in trouble


class Seen(Protocol):
    """What takes in objects; each call returns the GuidedModels that it concerns. See store.Store."""

    def put(self, kind: Kind, item: Object) -> set[Key]:
        """Take in a new or changed object."""

    def drop(self, kind: Kind, item: Object) -> set[Key]:
        """Forget an object."""

    def retain(self, kind: Kind, listed: Iterable[Name], namespace: str = "") -> set[Key]:
        """Forget what a list of a namespace, "" for all, did not hold."""

    def keys(self) -> set[Key]:
        """Return every model that some object belongs to."""


class Reflector:
    """Keeps one kind in the store.

    Parameters
    ----------
    api, kind, store
        Where from, what, where to.
    enqueue
        Called with each GuidedModel that a change concerns.
    namespace
        "" for all.
    clock, sleep
        Monotonic seconds, and waiting by the same clock.
    """

    def __init__(  # noqa: PLR0913 - two of them are only the clock
        self,
        api: Api,
        kind: Kind,
        store: Seen,
        enqueue: Callable[[Key], None],
        *,
        namespace: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._kind = kind
        self._store = store
        self._enqueue = enqueue
        self._namespace = namespace
        self._path = kind.path(namespace)
        self._clock = clock
        self._sleep = sleep
        self._backoff = Backoff(first_s=0.5, last_s=30.0)
        self._failures = 0
        self._version = ""
        self.broken = 0  # how often the watch broke off
        self.settled = asyncio.Event()  # listed once, or known to be forbidden or absent
        self.absent = False  # whether the API server does not know the kind
        self.forbidden = ""  # why the kind cannot be seen, "" if it can

    async def run(self) -> None:
        """List and watch for ever."""
        while True:
            try:
                await self._list()
                await self._follow()
            except ObjectNotFound as error:
                if not self._kind.optional:
                    await self._pause(error)
                else:
                    self._set_absent(absent=True)
                    await self._sleep(_ABSENT_RETRY_S)
            except AccessForbidden as error:
                self._set_forbidden(str(error))
                await self._sleep(_FORBIDDEN_RETRY_S)
            except ApiError as error:  # WatchExpired too: not at once, for it may expire again
                await self._pause(error)

    def take_written(self, item: Object) -> None:
        """Take in what a write returned, if the watch has yet to tell of it: the next pass need not wait."""
        # Later, the object may be gone already.
        if self._version.isdecimal() and int(item["metadata"]["resourceVersion"]) > int(self._version):
            self._store.put(self._kind, item)

    async def _list(self) -> None:
        listed: set[Name] = set()
        params = {**self._selected(), "limit": str(PAGE_OBJECTS)}
        while True:
            # By pages: thousands of objects at once take hundreds of MiB until they are projected.
            answer = await self._api.read(
                self._path, params=params, metadata_only=self._kind.metadata_only, timeout_s=_LIST_TIMEOUT_S
            )
            for item in answer["items"]:
                listed.add(name_of(item))
                self._enqueue_all(self._store.put(self._kind, item))
            if not answer["metadata"].get("continue"):
                break
            params["continue"] = answer["metadata"]["continue"]
        self._version = answer["metadata"]["resourceVersion"]
        self._failures = 0
        if self.forbidden:
            self._set_forbidden("")
        self._enqueue_all(self._store.retain(self._kind, listed, self._namespace))
        self._set_absent(absent=False)
        self.settled.set()

    def _selected(self) -> dict[str, str]:
        return {"labelSelector": self._kind.selector} if self._kind.selector else {}

    async def _follow(self) -> None:
        """Take in events; returns only by an error that a new list must follow."""
        while True:
            window_s = WATCH_S * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
            params = {
                **self._selected(),
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": self._version,
                "timeoutSeconds": str(int(window_s)),
            }
            events = self._api.watch(
                self._path,
                params=params,
                metadata_only=self._kind.metadata_only,
                timeout_s=window_s + _WATCH_GRACE_S,
            )
            began_s = self._clock()
            try:
                async for event in events:
                    self._version = self._take(event)
                    self._failures = 0
                if self._clock() - began_s < _TOO_SHORT_S:
                    await self._pause(ServerUnavailable("the server ended it at once"))
            except ServerUnavailable as error:
                # What was seen so far still stands: go on from there; the server says if it cannot.
                await self._pause(error)

    async def _pause(self, error: ApiError) -> None:
        self._failures += 1
        self.broken += 1
        delay_s = max(self._backoff.delay_s(self._failures), error.retry_after_s or 0.0)
        logger.warning("watching %s broke off, again in %.1f s: %s", self._path, delay_s, error)
        await self._sleep(delay_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    def _take(self, event: Object) -> str:
        item = event["object"]
        if event["type"] == "ERROR":
            raise _error_of(item)
        if event["type"] == "DELETED":
            self._enqueue_all(self._store.drop(self._kind, item))
        elif event["type"] != "BOOKMARK":
            self._enqueue_all(self._store.put(self._kind, item))
        version: str = item["metadata"]["resourceVersion"]
        return version

    def _enqueue_all(self, keys: set[Key]) -> None:
        for key in keys:
            self._enqueue(key)

    def _set_absent(self, *, absent: bool) -> None:
        if absent == self.absent:
            self.settled.set()
            return
        logger.info("the API of %s is %s", self._kind.plural, "not installed" if absent else "there")
        if absent:
            self._store.retain(self._kind, (), self._namespace)
        self.absent = absent
        self.settled.set()
        self._enqueue_all(self._store.keys())

    def _set_forbidden(self, why: str) -> None:
        if why:
            logger.error("%s cannot be seen: %s", self._kind.plural, why)
            self._store.retain(self._kind, (), self._namespace)
        self.forbidden = why
        self.settled.set()
        self._enqueue_all(self._store.keys())


def _error_of(status: Object) -> ApiError:
    code, message = int(status.get("code", 500)), str(status.get("message", "the watch failed"))
    known = {410: WatchExpired, 403: AccessForbidden, 401: AccessForbidden}
    return known.get(code, ServerUnavailable)(message, status=code)
