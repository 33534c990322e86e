"""The operator's one way to the API server: four verbs over a transport of kubernetes.aio."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal, Self

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient
from msgspec import MsgspecError

from guided_operator.kube import json_text, transport
from guided_operator.kube.api_errors import ObjectInvalid, ServerUnavailable, error_of

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
_CONNECT_TIMEOUT_S: Final = 5.0
# Of an answer. All of a model's revisions have less, and a tenant may label as many as there is room for.
_MOST_BYTES: Final = 16 << 20
_MOST_CONTAINERS: Final = 1_000_000  # 64 bytes each
_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def as_yaml(body: Object) -> str:
    """Return JSON that is YAML too: what YAML takes for a line break or refuses is escaped."""
    text = msgspec.json.encode(body).decode()
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class ApiServer:
    """What the operator asks of the API server; `tests/support/memory_api.py` is its in-memory fake.

    `path` is absolute on the server, as `kinds.api_path` returns it. `params` are query parameters.
    `timeout_s` bounds the whole request, in seconds. Every request raises an ApiError.
    What is nested too deeply in an object is cut off: see json_text.

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
        self, path: str, *, params: Mapping[str, str] | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        """Return the object or list at `path`."""
        return await self._request("GET", path, params, timeout_s=timeout_s)

    async def create(self, path: str, body: Object, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Object:
        """Create the object in the collection at `path`, and return it as stored."""
        params = {"fieldManager": FIELD_MANAGER}
        return await self._request("POST", path, params, msgspec.json.encode(body), timeout_s=timeout_s)

    async def patch(
        self, path: str, body: Any, *, kind: PatchType, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        """Change the object at `path`, and return it as stored; `apply`: forced, server-side, or make it."""
        params = {"fieldManager": FIELD_MANAGER}
        if kind == "apply":
            params["force"] = "true"
        text = as_yaml(body).encode() if kind == "apply" else msgspec.json.encode(body)
        return await self._request("PATCH", path, params, text, _CONTENT_TYPES[kind], timeout_s=timeout_s)

    async def delete(self, path: str, *, uid: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Delete exactly the object with this uid at `path`; its dependents go in the background."""
        body = msgspec.json.encode({"preconditions": {"uid": uid}, "propagationPolicy": "Background"})
        await self._request("DELETE", path, body=body, timeout_s=timeout_s)

    async def _request(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        *,
        timeout_s: float,
    ) -> Object:
        if method != "GET":
            timeout_s = self._bound_s(timeout_s)
        # By the client's session, and not by its methods, which take longer than the request.
        sent = {"Accept": "application/json", **self._client.default_headers}
        if body is not None:
            sent["Content-Type"] = content_type
        session: aiohttp.ClientSession = self._client.rest_client.pool_manager
        with _transport_faults():
            await self._client.update_params_for_auth(sent, [], ["BearerToken"], path, method, body)
            async with session.request(
                method,
                self.url + path,
                # The server gives up then, too: no write that it was slow to begin is made when nobody waits.
                params={**(params or {}), "timeout": f"{timeout_s:.3f}s"},
                data=body,
                headers=sent,
                timeout=aiohttp.ClientTimeout(timeout_s, sock_connect=min(_CONNECT_TIMEOUT_S, timeout_s)),
                allow_redirects=False,
                server_hostname=self._client.configuration.tls_server_name,
            ) as response:
                data = await _read(response)
            if 200 <= response.status < 300:
                bounded = await json_text.bounded_beside(data)
                is_large = len(bounded) >= json_text.LARGE_BYTES
                decode = msgspec.json.decode
                return await asyncio.to_thread(decode, bounded) if is_large else decode(bounded)
        raise error_of(response.status, data, response.headers.get("Retry-After"))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return an answer; of one that no list of ours comes near, it is an error that it is too large."""
    data, containers = bytearray(), 0
    async for chunk in response.content.iter_any():
        data += chunk
        containers += chunk.count(b"[") + chunk.count(b"{")
        if len(data) > _MOST_BYTES or containers > _MOST_CONTAINERS:
            raise ObjectInvalid("the API server's answer is too large to be read")
    return bytes(data)


@contextmanager
def _transport_faults() -> Iterator[None]:
    """Turn what the transport raises when no proper answer came into `ServerUnavailable`."""
    try:
        yield
    except (aiohttp.ClientError, MsgspecError, OSError, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__  # a timeout has no text of its own
        raise ServerUnavailable(f"the API server did not answer: {reason}") from error
