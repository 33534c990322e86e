"""One OTLP trace request to the collector, over HTTP or gRPC, without any retry.

`Transport` is what the exporter sees; `MemoryTransport` is its fake. Bodies are serialised
ExportTraceServiceRequest messages, so that what vLLM sent and what the sidecar made go the same way. The
SDK's exporters take spans, not bytes, and read certificates and headers once.
"""

import io
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

import aiohttp
import grpc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from guided_contract.config import TelemetryConfig
from guided_sidecar.telemetry.credentials import Credentials, CredentialsError

HTTP_PATH: Final = "/v1/traces"
NO_CREDENTIALS: Final = Credentials()
_PROTOBUF: Final = "application/x-protobuf"
_GRPC_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# Cluster-internal traffic: a proxy of the environment is for other hosts. The reconnect bounds keep a
# collector that returns from waiting for gRPC's own two minutes.
_GRPC_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)
_TIMEOUT_S: Final = 10.0  # OTEL_EXPORTER_OTLP_TIMEOUT's default
# Which answers allow the same bytes again: https://opentelemetry.io/docs/specs/otlp/
_RETRYABLE_HTTP: Final = frozenset({429, 502, 503, 504})
_RETRYABLE_GRPC: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
    | {"RESOURCE_EXHAUSTED"}
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request. `rejected`: spans that the collector refused of a delivered one."""

    verdict: Literal["Delivered", "Retry", "Refused"]
    rejected: int = 0
    reason: str = ""


class Transport(Protocol):
    """A way to the collector."""

    async def send(self, body: bytes) -> Reply:
        """Send one request; the collector's faults are replies, never exceptions."""

    async def close(self) -> None:
        """Close all connections."""


class HttpTransport:
    """OTLP/HTTP with protobuf bodies to `endpoint`/v1/traces. Make it in a running event loop."""

    def __init__(self, endpoint: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._url = endpoint.rstrip("/") + HTTP_PATH
        self._credentials = credentials
        self._stamp: tuple[int, ...] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def send(self, body: bytes) -> Reply:
        """Send one request."""
        try:
            session = await self._connected()
            headers = {**self._credentials.headers(), "Content-Type": _PROTOBUF}
            # A stream: aiohttp writes large bytes in one piece, which holds the event loop up.
            async with session.post(
                self._url, data=io.BytesIO(body), headers=headers, allow_redirects=False
            ) as response:
                answer = await response.read()
        except CredentialsError as error:
            return Reply("Retry", reason=str(error))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # ValueError: no host's name
            return Reply("Retry", reason=str(error) or type(error).__name__)
        if response.status == 200:
            return Reply("Delivered", rejected=_rejected(answer))
        verdict: Literal["Retry", "Refused"] = "Retry" if response.status in _RETRYABLE_HTTP else "Refused"
        return Reply(verdict, reason=f"HTTP {response.status}")

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _connected(self) -> aiohttp.ClientSession:
        """Return the session, a new one where the files have changed since it was made."""
        stamp = self._credentials.stamp
        if self._session is None or stamp != self._stamp:
            tls = self._credentials.tls() if self._url.startswith("https:") else True
            await self.close()
            connector = aiohttp.TCPConnector(ssl=tls)
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            self._stamp = stamp
        return self._session


class GrpcTransport:
    """OTLP/gRPC; `endpoint`'s scheme decides on TLS. Make it in a running event loop; never fork after it."""

    def __init__(self, endpoint: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._endpoint = urlsplit(endpoint)
        self._credentials = credentials
        self._stamp: tuple[int, ...] | None = None
        self._channel: grpc.aio.Channel | None = None

    async def send(self, body: bytes) -> Reply:
        """Send one request."""
        try:
            channel = await self._connected()
            export = channel.unary_unary(_GRPC_METHOD)  # no serialiser: bytes in, bytes out
            metadata = tuple(self._credentials.headers().items())
            answer = await export(body, timeout=_TIMEOUT_S, metadata=metadata)
        except CredentialsError as error:
            return Reply("Retry", reason=str(error))
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            return Reply("Retry" if code in _RETRYABLE_GRPC else "Refused", reason=f"gRPC {code}")
        return Reply("Delivered", rejected=_rejected(answer))

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def _connected(self) -> grpc.aio.Channel:
        """Return the channel, a new one where the files have changed since it was made."""
        stamp = self._credentials.stamp
        if self._channel is None or stamp != self._stamp:
            host = self._endpoint.netloc
            if self._endpoint.scheme == "https":
                channel = grpc.aio.secure_channel(host, self._credentials.grpc_tls(), _GRPC_OPTIONS)
            else:
                channel = grpc.aio.insecure_channel(host, _GRPC_OPTIONS)
            await self.close()
            self._channel, self._stamp = channel, stamp
        return self._channel


@dataclass(slots=True)
class MemoryTransport:
    """Keeps bodies in a list, for tests. `replies` are given in order, then everything is delivered."""

    sent: list[bytes] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    async def send(self, body: bytes) -> Reply:
        """Keep one request, unless the next reply says otherwise."""
        reply = self.replies.pop(0) if self.replies else Reply("Delivered")
        if reply.verdict == "Delivered":
            self.sent.append(body)
        return reply

    async def close(self) -> None:
        """Do nothing."""


def connect(config: TelemetryConfig) -> Transport | None:
    """Return the transport that the configuration asks for; None where traces are off."""
    if config.endpoint is None:
        return None
    make = GrpcTransport if config.protocol == "GRPC" else HttpTransport
    return make(config.endpoint, Credentials.of(config))


def _rejected(answer: bytes) -> int:
    """Return how many spans the collector refused; an answer that is no protobuf refuses none."""
    try:
        return ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans
    except DecodeError:
        return 0
