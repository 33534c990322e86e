"""What kopf sees of the API server: of each GuidedModel its identity, and the rest as a text.

kopf parses what it reads however deep it is, keeps it parsed while it waits for a worker, and acts on
annotations and finalizers that look like its own. So it gets objects without any of that.
"""

import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
import msgspec

from guided_contract import names
from guided_operator.kube import json_text, transport
from guided_operator.kube.apiserver import Object
from guided_operator.watch.guided_models import thinned

# A page is in memory as a text, and its objects one after the other: up to 1.5 MiB each.
PAGE_MODELS: Final = 20
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_READ_BYTES: Final = 5 << 20  # a watch event is one line, of up to twice this: see transport
_TEXT: Final = "text"


class _List(msgspec.Struct):
    metadata: Object
    items: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


def open_session(
    headers: dict[str, str], tls: ssl.SSLContext, proxy: str | None, *, trust_env: bool
) -> aiohttp.ClientSession:
    """Return a session for kopf."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=transport.open_socket),
        headers=headers,
        proxy=proxy,
        trust_env=trust_env,
        read_bufsize=_READ_BYTES,
        response_class=_Response,
    )


def model_of(shown: Object) -> Object:
    """Return the GuidedModel that was shown to kopf as `shown`."""
    model: Object = msgspec.json.decode(shown[_TEXT])
    return model


class _Response(aiohttp.ClientResponse):
    """An answer of which kopf reads `json`, or the lines of a watch from `content`."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        if self.status == 200 and self._is_of_models() and "watch" in self.url.query:
            self.content = _Events(self.content)  # type: ignore[assignment]  # kopf calls iter_chunked alone
        return self

    async def json(self, **_: Any) -> Any:
        text = json_text.bounded(await self.read())
        if self.status != 200 or not self._is_of_models():
            return msgspec.json.decode(text)
        answer = msgspec.json.decode(text, type=_List)
        return {"metadata": answer.metadata, "items": [_shown(bytes(item)) for item in answer.items]}

    def _is_of_models(self) -> bool:
        return self.url.path.endswith(f"/{names.PLURAL}")


class _Events:
    """The lines of a watch, each with what kopf may see of its object."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        async for line in self._content:
            event = msgspec.json.decode(json_text.bounded(line), type=_Event)
            item = msgspec.json.decode(event.object) if event.type == "ERROR" else _shown(bytes(event.object))
            yield msgspec.json.encode({"type": event.type, "object": item}) + b"\n"


def _shown(text: bytes) -> Object:
    model = thinned(msgspec.json.decode(text))
    metadata = {field: model["metadata"][field] for field in _IDENTITY if field in model["metadata"]}
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.KIND,
        "metadata": metadata,
        _TEXT: msgspec.json.encode(model).decode(),
    }
