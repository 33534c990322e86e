"""kopf as the operator uses it: as informer of every watched kind, in the operator's own event loop.

kopf hands each event over and does nothing else: a handler of raw events needs no finalizer, nothing is
stored in objects, nothing of theirs is read, and no fault of one kind's watch ends it.
"""

import asyncio
import contextvars
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import aiohttp
import kopf
import msgspec

from guided_operator.kube import json_text
from guided_operator.kube.apiserver import FIELD_MANAGER, ApiServer
from guided_operator.watch.cache import thinned
from guided_operator.watch.informers import Informer

Object = dict[str, Any]
# A page is in memory as a text, of up to 1.5 MiB an object, and its objects one after the other.
_PAGE_OBJECTS: Final = 20
# An answer that kopf takes for: the version is too old, list again.
_GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'
_UNAVAILABLE: Final = 503


class _ForEver:
    """Pauses between tries, without an end: one kind that cannot be seen must not end the operator."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.5, 1.0, 2.0), itertools.repeat(5.0))


class _NoDiffs(kopf.DiffBaseStorage):  # type: ignore[misc]  # kopf has no types
    """Keeps nothing in objects, and reads nothing from them."""

    def build(self, **_: Any) -> Object:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):  # type: ignore[misc]  # kopf has no types
    """Keeps nothing in objects, and reads nothing from them."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


class Events:
    """Kubernetes' Events, which kopf posts in the context of a handler alone, and in the background."""

    def __init__(self) -> None:
        self._context: contextvars.Context | None = None

    def begin(self) -> None:
        """Post in the context of this call, a handler's, from now on."""
        self._context = self._context or contextvars.copy_context()

    def warn(self, about: Object, reason: str, message: str) -> None:
        """Post a Warning about an object that a handler has seen."""
        if self._context is not None:
            self._context.run(kopf.warn, about, reason=reason, message=message)


async def watch(
    api: ApiServer,
    informers: Mapping[str, Informer],
    events: Events,
    namespaces: Sequence[str],
) -> None:
    """Watch until kopf ends, by its own fault or by a signal, which it takes when it begins.

    All tasks of this event loop that began later then end, too.

    Parameters
    ----------
    api
        Whose connections and credentials kopf uses.
    informers
        What takes in the objects, by path.
    events
        What can be posted from then on.
    namespaces
        Those that are served; empty: all.
    """
    await kopf.operator(
        registry=_registry(api, informers, events),
        settings=_settings(informers.values(), clusterwide=not namespaces),
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _settings(informers: Iterable[Informer], *, clusterwide: bool) -> kopf.OperatorSettings:
    """Return kopf's settings."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.diffbase_storage = _NoDiffs()
    chosen.persistence.progress_storage = _NoProgress()
    # kopf takes its finalizer off whatever it watches, and by default it is that of other operators, too.
    chosen.persistence.finalizer = "guidedmodel.io/none"
    chosen.networking.error_backoffs = _ForEver()
    chosen.networking.request_timeout = 60
    chosen.watching.reconnect_backoff = 1
    chosen.watching.chunk_size = _PAGE_OBJECTS
    chosen.queueing.idle_timeout = 0.2  # a worker keeps its last object for so long
    chosen.queueing.exit_timeout = 0.1
    chosen.peering.standalone = True  # who acts is decided by our Lease
    chosen.posting.reporting_component = FIELD_MANAGER
    chosen.posting.event_name_prefix = f"{FIELD_MANAGER}-"
    chosen.posting.default_backoffs = (1.0, 5.0)  # then it is logged, and lost
    chosen.scanning.disabled = not clusterwide  # else it sees CRDs come and go, which takes a right on them
    for kind in {each.kind for each in informers}:
        if kind.selector:
            chosen.watching.label_selectors[_resource(kind.api_version, kind.plural)] = kind.selector
    return chosen


def _registry(api: ApiServer, informers: Mapping[str, Informer], events: Events) -> kopf.OperatorRegistry:
    """Return the handlers, which hand each event to its informer."""
    handlers = kopf.OperatorRegistry()

    answers = type("Response", (_Response,), {"informers": informers})

    @kopf.on.login(registry=handlers)  # type: ignore[untyped-decorator]  # kopf has no types
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=api.url, aiohttp_session=api.session(answers))

    for kind in {each.kind for each in informers.values()}:

        @kopf.on.event(*_resource(kind.api_version, kind.plural), id=kind.plural, registry=handlers)  # type: ignore[untyped-decorator]  # kopf has no types
        async def seen(
            event: Object, kind: Any = kind, **_: Any
        ) -> None:  # what it returned would be written
            events.begin()
            item = event["object"]
            found = informers.get(kind.path()) or informers[kind.path(item["metadata"]["namespace"])]
            found.take(event["type"], item)

    return handlers


def _resource(api_version: str, plural: str) -> tuple[str, str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version, plural


class _List(msgspec.Struct):
    kind: str = ""
    metadata: Object = {}
    items: list[msgspec.Raw] | None = None


class _Response(aiohttp.ClientResponse):
    """An answer that kopf gets: what would end it is turned into what it tries again."""

    informers: Mapping[str, Informer] = {}

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        if self.status == 401 or (self.status == 200 and self.content_type != "application/json"):
            self.status = _UNAVAILABLE  # each request has new credentials; and a proxy's page is no answer
        if not self._is_list() and not self._is_watch():
            return self
        informer = self.informers.get(self.url.path)
        if informer is not None and self.status == 403:
            informer.refused(_message(await self.read()))
        elif informer is not None:
            informer.answered(is_well=self.status == 200)
        # A kind that has gone may come again; and where a version is too old, "list again" is read below.
        self.status = {404: _UNAVAILABLE, 410: 200}.get(self.status, self.status)
        if self.status == 200 and self._is_watch():
            self.content = _Lines(self.content, informer)  # type: ignore[assignment]  # kopf calls iter_chunked alone
        return self

    async def json(self, **_: Any) -> Any:
        text = await json_text.bounded_beside(await self.read())
        try:
            if self.status != 200 or not self._is_list():
                return msgspec.json.decode(text)
            answer = msgspec.json.decode(text, type=_List)
        except msgspec.DecodeError as error:
            if self.status >= 400:  # kopf says which
                return None
            raise aiohttp.ClientPayloadError(f"no JSON: {error}") from error
        if answer.kind == "Status":
            raise aiohttp.ClientPayloadError("list again")
        items = [
            _item(text)
            if len(text := bytes(each)) < json_text.LARGE_BYTES
            else await asyncio.to_thread(_item, text)
            for each in answer.items or ()
        ]
        if informer := self.informers.get(self.url.path):
            is_first, is_last = "continue" not in self.url.query, not answer.metadata.get("continue")
            version = int(answer.metadata["resourceVersion"])
            informer.listed(items, version, is_first=is_first, is_last=is_last)
        return {"kind": answer.kind, "metadata": answer.metadata, "items": items}

    def _is_list(self) -> bool:
        return "limit" in self.url.query

    def _is_watch(self) -> bool:
        return "watch" in self.url.query


class _Lines:
    """The lines of a watch; one that is no event, or an error, says: list again."""

    def __init__(self, content: aiohttp.StreamReader, informer: Informer | None) -> None:
        self._content = content
        self._informer = informer

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        try:
            async for line in self._content:
                if line.startswith(b'{"type":"ERROR"') or not line.endswith(b"}\n"):
                    break
                bounded = await json_text.bounded_beside(line)
                is_large = len(bounded) >= json_text.LARGE_BYTES
                yield await asyncio.to_thread(_event, bounded) if is_large else bounded
            else:
                return
        except ValueError:  # a line that is too long, or none
            pass
        if self._informer is not None:
            self._informer.answered(is_well=False)
        yield _GONE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


def _item(text: bytes) -> Object:
    """Return an object, a large one without what makes it dear and nobody reads."""
    item: Object = msgspec.json.decode(text)
    return item if len(text) < json_text.LARGE_BYTES else thinned(item)


def _event(line: bytes) -> bytes:
    event = msgspec.json.decode(line)
    return msgspec.json.encode({**event, "object": thinned(event["object"])}) + b"\n"


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "the API server answered 403"
