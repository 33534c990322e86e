"""A small list-and-watch: keeps the store like the cluster, for one kind.

After a lost watch it lists again and replaces what it knew, so a deletion that nobody reported is not
missed. A forbidden kind is remembered as such and tried again now and then; the rest goes on.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from guided_operator.apiserver import AccessForbidden, Api, ApiError, Object, ServerUnavailable, WatchExpired
from guided_operator.kinds import Kind
from guided_operator.queue import Backoff, Key

logger = logging.getLogger(__name__)

# A watch ends by itself so often: bounds how long a connection that died silently goes unnoticed.
WATCH_S: Final = 150.0
_WATCH_GRACE_S: Final = 10.0  # the server ends it first
_FORBIDDEN_RETRY_S: Final = 60.0  # somebody has to grant a right first
_LIST_TIMEOUT_S: Final = 60.0


class Seen(Protocol):
    """What takes in objects; each call returns the GuidedModels that it concerns. See store.Store."""

    def put(self, kind: Kind, item: Object) -> set[Key]:
        """Take in a new or changed object."""

    def drop(self, kind: Kind, item: Object) -> set[Key]:
        """Forget an object."""

    def replace(self, kind: Kind, items: Iterable[Object]) -> set[Key]:
        """Take in a whole list."""

    def keys(self) -> set[Key]:
        """Return every model that some object belongs to."""


class Reflector:
    """Keeps one kind in the store.

    Parameters
    ----------
    api, kind, store
        Where from, what, where to.
    ring
        Told each GuidedModel that a change concerns.
    namespace
        "" for all.
    """

    def __init__(  # noqa: PLR0913 - the last is only the clock
        self,
        api: Api,
        kind: Kind,
        store: Seen,
        ring: Callable[[Key], None],
        *,
        namespace: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._kind = kind
        self._store = store
        self._ring = ring
        self._path = kind.path(namespace)
        self._sleep = sleep
        self._backoff = Backoff(first_s=0.5, last_s=30.0)
        self._failures = 0
        self._version = ""
        self.settled = asyncio.Event()  # listed once, or known to be forbidden
        self.forbidden = ""  # why the kind cannot be seen, "" if it can

    async def run(self) -> None:
        """List and watch for ever."""
        while True:
            try:
                await self._list()
                await self._follow()
            except WatchExpired:
                logger.info("%s: too much has changed since the watch broke off, listing anew", self._path)
            except AccessForbidden as error:
                self._set_forbidden(str(error))
                await self._sleep(_FORBIDDEN_RETRY_S)
            except ApiError as error:
                await self._pause(error)

    async def _list(self) -> None:
        params = {"labelSelector": self._kind.selector}
        answer = await self._api.read(
            self._path,
            params=params,
            metadata_only=self._kind.metadata_only,
            timeout_s=_LIST_TIMEOUT_S,
        )
        self._version = answer["metadata"]["resourceVersion"]
        self._failures = 0
        self._tell(self._store.replace(self._kind, answer["items"]))
        if self.forbidden:
            self._set_forbidden("")
        self.settled.set()

    async def _follow(self) -> None:
        """Take in events; returns only by an error that a new list must follow."""
        while True:
            window_s = WATCH_S * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
            params = {
                "labelSelector": self._kind.selector,
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
            try:
                async for event in events:
                    self._version = self._take(event)
                    self._failures = 0
            except ServerUnavailable as error:
                # What was seen so far still stands: go on from there; the server says if it cannot.
                await self._pause(error)

    async def _pause(self, error: ApiError) -> None:
        self._failures += 1
        delay_s = max(self._backoff.delay_s(self._failures), error.retry_after_s or 0.0)
        logger.warning("watching %s broke off, again in %.1f s: %s", self._path, delay_s, error)
        await self._sleep(delay_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    def _take(self, event: Object) -> str:
        item = event["object"]
        if event["type"] == "ERROR":
            raise _error_of(item)
        if event["type"] == "DELETED":
            self._tell(self._store.drop(self._kind, item))
        elif event["type"] != "BOOKMARK":
            self._tell(self._store.put(self._kind, item))
        version: str = item["metadata"]["resourceVersion"]
        return version

    def _tell(self, keys: set[Key]) -> None:
        for key in keys:
            self._ring(key)

    def _set_forbidden(self, why: str) -> None:
        if why:
            logger.error("%s cannot be seen: %s", self._kind.plural, why)
            self._store.replace(self._kind, [])
        self.forbidden = why
        self.settled.set()
        self._tell(self._store.keys())


def _error_of(status: Object) -> ApiError:
    code, message = int(status.get("code", 500)), str(status.get("message", "the watch failed"))
    known = {410: WatchExpired, 403: AccessForbidden, 401: AccessForbidden}
    return known.get(code, ServerUnavailable)(message, status=code)
