"""One OTLP trace request to the collector, over HTTP or gRPC, without any retry.

`Transport` is what the exporter sees; `MemoryTransport` is its fake. Bodies are serialised
ExportTraceServiceRequest messages, so that what vLLM sent and what the sidecar made go the same way.
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

HTTP_PATH: Final = "/v1/traces"
_PROTOBUF: Final = "application/x-protobuf"
_GRPC_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
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

    def __init__(self, endpoint: str) -> None:
        self._url = endpoint.rstrip("/") + HTTP_PATH
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))

    async def send(self, body: bytes) -> Reply:
        """Send one request."""
        try:
            # A stream: aiohttp writes large bytes in one piece, which holds the event loop up.
            async with self._session.post(
                self._url, data=io.BytesIO(body), headers={"Content-Type": _PROTOBUF}, allow_redirects=False
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # ValueError: no host's name
            return Reply("Retry", reason=str(error) or type(error).__name__)
        if response.status == 200:
            return Reply("Delivered", rejected=_rejected(answer))
        verdict: Literal["Retry", "Refused"] = "Retry" if response.status in _RETRYABLE_HTTP else "Refused"
        return Reply(verdict, reason=f"HTTP {response.status}")

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class GrpcTransport:
    """OTLP/gRPC; `endpoint`'s scheme decides on TLS. Make it in a running event loop; never fork after it."""

    def __init__(self, endpoint: str) -> None:
        url = urlsplit(endpoint)
        # Cluster-internal traffic: a proxy of the environment is for other hosts. The reconnect bounds keep
        # a collector that returns from waiting for gRPC's own two minutes.
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 500),
            ("grpc.max_reconnect_backoff_ms", 5000),
        ]
        if url.scheme == "https":
            self._channel = grpc.aio.secure_channel(url.netloc, grpc.ssl_channel_credentials(), options)
        else:
            self._channel = grpc.aio.insecure_channel(url.netloc, options)
        self._export = self._channel.unary_unary(_GRPC_METHOD)  # no serialiser: bytes in, bytes out

    async def send(self, body: bytes) -> Reply:
        """Send one request."""
        try:
            answer = await self._export(body, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            return Reply("Retry" if code in _RETRYABLE_GRPC else "Refused", reason=f"gRPC {code}")
        return Reply("Delivered", rejected=_rejected(answer))

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


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
    return GrpcTransport(config.endpoint) if config.protocol == "GRPC" else HttpTransport(config.endpoint)


def _rejected(answer: bytes) -> int:
    """Return how many spans the collector refused; an answer that is no protobuf refuses none."""
    try:
        return ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans
    except DecodeError:
        return 0
