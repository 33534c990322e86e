"""The operator's one way to the API server: five verbs over a transport of kubernetes.aio, and their errors.

::

    ApiError
    |- ObjectNotFound         404
    |- AlreadyExists          409 on create
    |- WriteConflict          409 otherwise: a stale resourceVersion, a field owned by another manager
    |- AccessForbidden        401, 403
    |- ObjectInvalid          400, 422: retrying the same bytes cannot help
    |- WatchExpired           410: list again
    `- ServerUnavailable      429, 5xx, no answer: the only ones worth a retry as they are
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal, Protocol, Self

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient
from msgspec import MsgspecError

from guided_operator.kube import transport

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
# A refusal can quote the whole object; its beginning says what was wrong.
MAX_MESSAGE_CHARS: Final = 500


class ApiError(Exception):
    """A request to the API server failed; the message is the server's own where it sent one."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        self.status = status
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ObjectNotFound(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The object, or its kind, does not exist."""


class AlreadyExists(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """An object of this name was there before the create."""


class WriteConflict(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """Somebody else wrote the object since it was read."""


class AccessForbidden(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The operator's service account may not do this."""


class ObjectInvalid(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The server refuses the object as it is."""


class WatchExpired(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The resource version is too old to watch from: list again."""


class ServerUnavailable(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """No answer, an overloaded server or a server fault; `retry_after_s` where the server said when."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: ObjectInvalid,
    401: AccessForbidden,
    403: AccessForbidden,
    404: ObjectNotFound,
    409: WriteConflict,
    410: WatchExpired,
    422: ObjectInvalid,
}


class Api(Protocol):
    """What the operator asks of the API server; `tests/support/memory_api.py` is its in-memory fake.

    `path` is absolute on the server, as `kinds.api_path` returns it. `params` are query parameters.
    `timeout_s` bounds the whole request, in seconds. Every method raises an ApiError.
    """

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """Return the object or list at `path`; `metadata_only`: a PartialObjectMetadataList."""

    async def create(self, path: str, body: Object, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Object:
        """Create the object in the collection at `path`, and return it as stored."""

    async def patch(
        self, path: str, body: Any, *, kind: PatchType, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        """Change the object at `path`, and return it as stored; `apply` is forced server-side apply."""

    async def delete(self, path: str, *, uid: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Delete exactly the object with this uid at `path`."""

    def watch(
        self, path: str, *, params: Mapping[str, str], metadata_only: bool = False, timeout_s: float
    ) -> AsyncIterator[Object]:
        """Yield watch events of the collection at `path` until the server, or the timeout, ends it."""


def error_of(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error that an HTTP response means; a `Status` object in `body` gives its message.

    `retry_after` is the header Retry-After; only a number of seconds counts.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = {}
    message = answer.get("message") if isinstance(answer, dict) else None
    message = str(message or f"the API server answered {status}")[:MAX_MESSAGE_CHARS]
    retry_after_s = float(retry_after) if retry_after and retry_after.isdigit() else None
    if status == 409 and isinstance(answer, dict) and answer.get("reason") == "AlreadyExists":
        return AlreadyExists(message, status=status)
    return _BY_STATUS.get(status, ServerUnavailable)(message, status=status, retry_after_s=retry_after_s)


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
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def connected(cls, *traces: aiohttp.TraceConfig) -> AsyncIterator[Self]:
        """Connect by the pod's service account, or outside a cluster by the kubeconfig; tell `traces`."""
        async with transport.connected(FIELD_MANAGER, *traces) as made:
            yield cls(made)

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
    ) -> Object:
        """Return the object or list at `path`; `metadata_only`: a list, of objects without the rest."""
        headers = {"Accept": _METADATA_LIST} if metadata_only else {}
        answer = await self._request("GET", path, params=params, headers=headers, timeout_s=timeout_s)
        if "items" in answer and answer["items"] is None:  # so Go writes an empty list of metadata
            answer["items"] = []
        return answer

    async def create(self, path: str, body: Object, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Object:
        """Create the object in the collection at `path`, and return it as stored."""
        params = {"fieldManager": FIELD_MANAGER}
        # A revision as YAML, which the server turns into JSON of its own writing. It keeps the bytes of a
        # ControllerRevision's data as they come and compares them on every later write; JSON written
        # otherwise than Go writes it would make that object unchangeable, even its labels.
        as_it_comes = body.get("kind") != "ControllerRevision"
        headers = {"Content-Type": "application/json" if as_it_comes else "application/yaml"}
        text = msgspec.json.encode(body) if as_it_comes else as_yaml(body).encode()
        return await self._request(
            "POST", path, params=params, body=text, headers=headers, timeout_s=timeout_s
        )

    async def patch(
        self, path: str, body: Any, *, kind: PatchType, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        """Change the object at `path`, and return it as stored; `apply` is forced server-side apply."""
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
                    yield msgspec.json.decode(line)
            finally:
                response.close()

    async def _request(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_TIMEOUT_S, timeout_s))
        # The server too gives up then: a write that it was slow to begin is not made when nobody waits.
        params = {**(params or {}), "timeout": f"{timeout_s:.3f}s"}
        with _transport_faults():
            response = await self._send(
                method, path, params=params, body=body, headers=headers, timeout=timeout
            )
            data = await response.read()
        if not 200 <= response.status < 300:
            raise error_of(response.status, data, response.headers.get("Retry-After"))
        with _transport_faults():
            answer: Object = msgspec.json.decode(data)
        return answer

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
            server_hostname=self._client.configuration.tls_server_name,
        )


@contextmanager
def _transport_faults() -> Iterator[None]:
    """Turn what the transport raises when no proper answer came into `ServerUnavailable`."""
    try:
        yield
    except (aiohttp.ClientError, MsgspecError, OSError, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__  # a timeout has no text of its own
        raise ServerUnavailable(f"the API server did not answer: {reason}") from error
