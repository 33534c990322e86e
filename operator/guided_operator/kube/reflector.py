"""A small list-and-watch: keeps the store like the cluster, for one kind.

After a lost watch it lists again and replaces what it knew, so a deletion that nobody reported is not
missed. A kind that is forbidden, or whose API is not installed, is remembered as such and tried again now
and then; the rest goes on. So it does beside an object that cannot be read: its namespace alone loses it.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from guided_operator.kube.api_errors import (
    AccessForbidden,
    AnswerTooLarge,
    ApiError,
    ObjectNotFound,
    ServerUnavailable,
    WatchExpired,
)
from guided_operator.kube.apiserver import Api, Object
from guided_operator.kube.json_text import TooDeepError, whole
from guided_operator.kube.kinds import Kind
from guided_operator.kube.queue import Backoff, Key
from guided_operator.kube.store import Name, name_of

logger = logging.getLogger(__name__)

# A watch ends by itself so often: bounds how long a connection that died silently goes unnoticed.
WATCH_S: Final = 150.0
_WATCH_GRACE_S: Final = 10.0  # the server ends it first
_FORBIDDEN_RETRY_S: Final = 20.0  # somebody has to grant a right first
# A refusal is believed if so many come over so long: an API server that has just started refuses everything
# until it knows who may what. Of what was seen before there is something to lose.
_REFUSALS: Final = 3
_REFUSED_S: Final = 60.0
_NEVER_SEEN_REFUSED_S: Final = 30.0
_ABSENT_RETRY_S: Final = 10.0  # somebody has to install the API first, and then waits for us
# Every kind is listed at once, and a page of each is in memory together: so many objects, or fewer if these
# have more bytes.
PAGE_OBJECTS: Final = 100
_PAGE_BYTES: Final = 4 << 20
_LIST_TIMEOUT_S: Final = 60.0
_TOO_SHORT_S: Final = 1.0  # a watch that ends sooner, though by itself, is a server in trouble


class Seen(Protocol):
    """What takes in objects; each call returns the GuidedModels that it concerns. See store.Store."""

    def put(self, kind: Kind, item: Object) -> set[Key]:
        """Take in a new or changed object."""

    def drop(self, kind: Kind, item: Object) -> set[Key]:
        """Forget an object."""

    def retain(self, kind: Kind, listed: Iterable[Name], namespace: str = "") -> set[Key]:
        """Drop objects missing from a full list of `namespace` ("" = all)."""

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
        self._refusals = 0
        self._refused_s = 0.0  # when the first of them came
        self._version = ""
        self.broken = 0  # how often the watch broke off
        self.unreadable: set[Name] = set()  # objects that the store could not take in, and does not hold
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
                await self._refused(error)
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
            answer = await page(self._api, self._kind, self._namespace, params)
            for item in answer.pop("items"):
                listed.add(name_of(item))
                self._put(item)
            if not answer["metadata"].get("continue"):
                break
            params["continue"] = answer["metadata"]["continue"]
        self._version = answer["metadata"]["resourceVersion"]
        self._failures = self._refusals = 0
        if self.forbidden:
            self._set_forbidden("")
        self.unreadable &= listed
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

    async def _pause(self, error: ApiError, most_s: float = math.inf) -> None:
        self._failures += 1
        self.broken += 1
        delay_s = max(self._backoff.delay_s(self._failures), error.retry_after_s or 0.0)
        delay_s = min(delay_s * random.uniform(0.8, 1.2), most_s)  # noqa: S311 - spreads load
        logger.warning("watch of %s failed; retrying in %.1f s: %s", self._path, delay_s, error)
        await self._sleep(delay_s)

    async def _refused(self, error: AccessForbidden) -> None:
        now_s = self._clock()
        self._refused_s = self._refused_s if self._refusals else now_s
        self._refusals += 1
        long_s = _REFUSED_S if self.settled.is_set() else _NEVER_SEEN_REFUSED_S
        lasts = self._refusals >= _REFUSALS and now_s - self._refused_s >= long_s
        if not lasts and not self.forbidden:
            # At the latest when it is to be believed: twice as long as before would be half a minute later.
            await self._pause(error, most_s=max(self._refused_s + long_s - now_s, self._backoff.first_s))
            return
        logger.error("%s cannot be seen: %s", self._kind.plural, error)
        self._set_forbidden(str(error))
        await self._sleep(_FORBIDDEN_RETRY_S)

    def _take(self, event: Object) -> str:
        item = event["object"]
        if event["type"] == "ERROR":
            raise _error_of(item)
        if event["type"] == "DELETED":
            self.unreadable.discard(name_of(item))
            self._enqueue_all(self._store.drop(self._kind, item))
        elif event["type"] != "BOOKMARK":
            self._put(item)
        version: str = item["metadata"]["resourceVersion"]
        return version

    def _put(self, item: Object) -> None:
        """Take in an object; one that cannot be read is forgotten, whatever is wrong with it."""
        where = name_of(item)
        try:
            concerned = self._store.put(self._kind, whole(item))
        except Exception as error:
            if where not in self.unreadable:
                told = None if isinstance(error, TooDeepError) else error  # which is no fault of ours
                reason = str(error) or type(error).__name__
                text = "%s %s/%s cannot be read, and is left out: %s"
                logger.exception(text, self._kind.name, *where, reason, exc_info=told)
            self.unreadable.add(where)
            concerned = self._store.drop(self._kind, item)
        else:
            self.unreadable.discard(where)
        self._enqueue_all(concerned)

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
        """Note why the kind cannot be seen, "" if it can; what was known of it stays."""
        is_news = bool(why) != bool(self.forbidden)
        self.forbidden = why
        self.settled.set()
        if is_news:
            self._enqueue_all(self._store.keys())


async def page(api: Api, kind: Kind, namespace: str, params: dict[str, str]) -> Object:
    """Return the next page of a list, of as many objects as `params` says or has to say in the end."""
    while True:
        limit = int(params["limit"])
        try:
            return await api.read(
                kind.path(namespace),
                params=params,
                metadata_only=kind.metadata_only,
                timeout_s=_LIST_TIMEOUT_S,
                most_bytes=_PAGE_BYTES if limit > 1 else None,
            )
        except AnswerTooLarge:
            params["limit"] = str(max(1, limit // 4))


def _error_of(status: Object) -> ApiError:
    code, message = int(status.get("code", 500)), str(status.get("message", "the watch failed"))
    known = {410: WatchExpired, 403: AccessForbidden, 401: AccessForbidden}
    return known.get(code, ServerUnavailable)(message, status=code)
