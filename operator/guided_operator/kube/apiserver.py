"""The operator's one way to the API server: four verbs over a transport of kubernetes.aio."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal, Protocol, Self

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong
from kubernetes.aio.client import ApiClient
from msgspec import MsgspecError

from guided_operator.kube import json_text, transport
from guided_operator.kube.api_errors import (
    AnswerTooLarge,
    ServerUnavailable,
    WatchExpired,
    error_of,
)

Object = dict[str, Any]
PatchType = Literal["json", "merge", "apply"]

FIELD_MANAGER: Final = "guidedmodel-operator"
# Above any sane request, below the time in which a person asks what hangs; the lease asks for less.
REQUEST_TIMEOUT_S: Final = 15.0
_CONTENT_TYPES: Final[Mapping[PatchType, str]] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_CONNECT_TIMEOUT_S: Final = 5.0
_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class Api(Protocol):
    """What the operator asks of the API server; `tests/support/memory_api.py` is its in-memory fake.

    `path` is absolute on the server, as `kinds.api_path` returns it. `params` are query parameters.
    `timeout_s` bounds the whole request, in seconds; `most_bytes` an answer. Every method raises an ApiError.
    What is nested too deeply in an object is cut off: see json_text.
    """

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        most_bytes: int | None = None,
    ) -> Object:
        """Return the object or list at `path`."""

    async def create(self, path: str, body: Object, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Object:
        """Create the object in the collection at `path`, and return it as stored."""

    async def patch(
        self, path: str, body: Any, *, kind: PatchType, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        """Change the object at `path`, and return it as stored; `apply`: forced, server-side, or make it."""

    async def delete(self, path: str, *, uid: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Delete exactly the object with this uid at `path`."""


def as_yaml(body: Object) -> str:
    """Return JSON that is YAML too: what YAML takes for a line break or refuses is escaped."""
    text = msgspec.json.encode(body).decode()
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class ApiServer:
    """The real `Api`.

    Parameters
    ----------
    client
        A client of kubernetes.aio, as `transport` opens it; it refreshes the service account's token itself.
    traces
        Told each request.
    bound_s
        Asked before each write, with the seconds that it would get; returns how many it gets, or raises.
    """

    def __init__(
        self,
        client: ApiClient,
        traces: Sequence[aiohttp.TraceConfig] = (),
        bound_s: Callable[[float], float] = lambda timeout_s: timeout_s,
    ) -> None:
        self._client = client
        self._traces = traces
        self._bound_s = bound_s

    def bounded(self, bound_s: Callable[[float], float]) -> Self:
        """Return the same whose writes are bounded so: see the class."""
        return type(self)(self._client, self._traces, bound_s)

    @classmethod
    @asynccontextmanager
    async def connected(cls, *traces: aiohttp.TraceConfig) -> AsyncIterator[Self]:
        """Connect by the pod's service account, or outside a cluster by the kubeconfig; tell `traces`."""
        async with transport.connected(FIELD_MANAGER, *traces) as made:
            yield cls(made, traces)

    def session(self, answers: type[aiohttp.ClientResponse]) -> aiohttp.ClientSession:
        """Return a session for others' requests by the same credentials, whose answers are of this class."""
        return transport.another_session(self._client, answers, self._traces)

    @property
    def url(self) -> str:
        """Where the API server is."""
        return str(self._client.configuration.host)

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        timeout_s: float = REQUEST_TIMEOUT_S,
        most_bytes: int | None = None,
    ) -> Object:
        """Return the object or list at `path`; `metadata_only`: a list, of objects without the rest."""
        headers = {"Accept": _METADATA_LIST} if metadata_only else {}
        answer = await self._request(
            "GET", path, params=params, headers=headers, timeout_s=timeout_s, most_bytes=most_bytes
        )
        if "items" in answer and answer["items"] is None:  # so Go writes an empty list of metadata
            answer["items"] = []
        return answer

    async def fetch(self, path: str, *, timeout_s: float, most_bytes: int) -> bytes:
        """Return what is at `path`, perhaps of a pod's own: it is not followed elsewhere."""
        return await self._exchange("GET", path, timeout_s=timeout_s, most_bytes=most_bytes)

    async def create(self, path: str, body: Object, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Object:
        """Create the object in the collection at `path`, and return it as stored."""
        params = {"fieldManager": FIELD_MANAGER}
        headers = {"Content-Type": "application/json"}
        text = msgspec.json.encode(body)
        return await self._request(
            "POST", path, params=params, body=text, headers=headers, timeout_s=timeout_s
        )

    async def patch(
        self, path: str, body: Any, *, kind: PatchType, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        """Change the object at `path`, and return it as stored; `apply`: forced, server-side, or make it."""
        params = {"fieldManager": FIELD_MANAGER}
        if kind == "apply":
            params["force"] = "true"
        headers = {"Content-Type": _CONTENT_TYPES[kind]}
        text = as_yaml(body).encode() if kind == "apply" else msgspec.json.encode(body)
        return await self._request(
            "PATCH", path, params=params, body=text, headers=headers, timeout_s=timeout_s
        )

    async def delete(self, path: str, *, uid: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Delete exactly the object with this uid at `path`; its dependents go in the background."""
        body = msgspec.json.encode({"preconditions": {"uid": uid}, "propagationPolicy": "Background"})
        headers = {"Content-Type": "application/json"}
        await self._request("DELETE", path, body=body, headers=headers, timeout_s=timeout_s)

    async def watch(
        self, path: str, *, params: Mapping[str, str], metadata_only: bool = False, timeout_s: float
    ) -> AsyncIterator[Object]:
        """Yield watch events of the collection at `path` until the server, or the timeout, ends it."""
        headers = {"Accept": _METADATA} if metadata_only else {}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S)
        with _transport_faults():
            response = await self._send("GET", path, params=params, headers=headers, timeout=timeout)
            try:
                if response.status != 200:
                    raise error_of(
                        response.status, await response.read(), response.headers.get("Retry-After")
                    )
                async for line in response.content:
                    yield msgspec.json.decode(await json_text.bounded_beside(line))
            except LineTooLong as error:  # not to be had by a watch: a list has it
                raise WatchExpired(f"a watch event was too long: {error}") from error
            finally:
                response.close()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        **parts: Any,
    ) -> Object:
        # The server too gives up then: a write that it was slow to begin is not made when nobody waits.
        if method != "GET":
            timeout_s = self._bound_s(timeout_s)
        params = {**(params or {}), "timeout": f"{timeout_s:.3f}s"}
        data = await self._exchange(method, path, params=params, timeout_s=timeout_s, **parts)
        with _transport_faults():
            answer: Object = msgspec.json.decode(await json_text.bounded_beside(data))
        return answer

    async def _exchange(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
        most_bytes: int | None = None,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_TIMEOUT_S, timeout_s))
        with _transport_faults():
            response = await self._send(
                method, path, params=params, body=body, headers=headers, timeout=timeout
            )
            data = await (response.read() if most_bytes is None else _read(response, most_bytes))
        if not 200 <= response.status < 300:
            raise error_of(response.status, data, response.headers.get("Retry-After"))
        return data

    async def _send(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, given on
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        # By the client's session, and not by its methods, which take longer than the request.
        sent = {"Accept": "application/json", **self._client.default_headers, **(headers or {})}
        await self._client.update_params_for_auth(sent, [], ["BearerToken"], path, method, body)
        session: aiohttp.ClientSession = self._client.rest_client.pool_manager
        return await session.request(
            method,
            self.url + path,
            params=params,
            data=body,
            headers=sent,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._client.configuration.tls_server_name,
        )


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > most_bytes:
            response.close()
            raise AnswerTooLarge(f"the answer has more than {most_bytes} bytes")
    return bytes(data)


@contextmanager
def _transport_faults() -> Iterator[None]:
    """Turn what the transport raises when no proper answer came into `ServerUnavailable`."""
    try:
        yield
    except (aiohttp.ClientError, MsgspecError, OSError, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__  # a timeout has no text of its own
        raise ServerUnavailable(f"the API server did not answer: {reason}") from error
