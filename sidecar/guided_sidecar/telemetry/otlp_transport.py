"""One OTLP request to the collector, over HTTP or gRPC, without any retry.

`Transport` is what the exporter sees; `MemoryTransport` is its fake. Bodies are serialised
ExportTraceServiceRequest messages, so that what vLLM sent and what the sidecar made go the same way. The
SDK's exporters take spans, not bytes, and read certificates and headers once.
"""

import asyncio
import gzip
import io
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp
import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from guided_contract.config import TelemetryConfig
from guided_sidecar.export_options import USUAL, ExportOptions
from guided_sidecar.telemetry.credentials import Credentials, CredentialsError


class Signal(NamedTuple):
    """What is sent, and where it goes: below an HTTP endpoint, and by which method of gRPC."""

    path: str
    method: str


TRACES: Final = Signal("/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export")
METRICS: Final = Signal("/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
NO_CREDENTIALS: Final = Credentials()
_PROTOBUF: Final = "application/x-protobuf"
# Cluster-internal traffic: a proxy of the environment is for other hosts. The reconnect bounds keep a
# collector that returns from waiting for gRPC's own two minutes.
_GRPC_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)
# Which answers allow the same bytes again: https://opentelemetry.io/docs/specs/otlp/
_RETRYABLE_HTTP: Final = frozenset({429, 502, 503, 504})
_RETRYABLE_GRPC: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)
_EXHAUSTED: Final = "RESOURCE_EXHAUSTED"  # is tried again only where the collector says when
_DETAILS: Final = "grpc-status-details-bin"
_FAST_LEVEL: Final = 1
_LARGE: Final = 64 << 10  # bytes that are compressed in a thread: some ms


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request.

    `rejected`: spans that the collector refused of a delivered one; `retry_after_s`: how long it asks to be
    left in peace.
    """

    verdict: Literal["Delivered", "Retry", "Refused"]
    rejected: int = 0
    reason: str = ""
    retry_after_s: float = 0.0


class Transport(Protocol):
    """A way to the collector."""

    async def send(self, body: bytes) -> Reply:
        """Send one request; the collector's faults are replies, never exceptions."""

    async def close(self) -> None:
        """Close all connections."""


class HttpTransport:
    """OTLP/HTTP with protobuf bodies; `endpoint` may end with the path. Make it in a running event loop."""

    def __init__(
        self,
        endpoint: str,
        credentials: Credentials = NO_CREDENTIALS,
        options: ExportOptions = USUAL,
        signal: Signal = TRACES,
    ) -> None:
        base = endpoint.rstrip("/").removesuffix(TRACES.path).removesuffix(METRICS.path)
        self._url = base + signal.path
        self._credentials = credentials
        self._options = options
        self._stamp: tuple[int, ...] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def send(self, body: bytes) -> Reply:
        """Send one request."""
        try:
            session = await self._connected()
            headers = {**self._options.headers, **self._credentials.headers(), "Content-Type": _PROTOBUF}
            if self._options.gzip:
                headers["Content-Encoding"] = "gzip"
                body = await _packed(body)
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
        wished_s = _seconds(response.headers.get("Retry-After", ""))
        return Reply(verdict, reason=f"HTTP {response.status}", retry_after_s=wished_s)

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
            timeout = aiohttp.ClientTimeout(total=self._options.timeout_s)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            self._stamp = stamp
        return self._session


class GrpcTransport:
    """OTLP/gRPC; `endpoint`'s scheme decides on TLS. Make it in a running event loop; never fork after it."""

    def __init__(
        self,
        endpoint: str,
        credentials: Credentials = NO_CREDENTIALS,
        options: ExportOptions = USUAL,
        signal: Signal = TRACES,
    ) -> None:
        self._method = signal.method
        self._endpoint = urlsplit(endpoint)
        self._credentials = credentials
        self._options = options
        self._stamp: tuple[int, ...] | None = None
        self._channel: grpc.aio.Channel | None = None

    async def send(self, body: bytes) -> Reply:
        """Send one request."""
        try:
            channel = await self._connected()
            export = channel.unary_unary(self._method)  # no serialiser: bytes in, bytes out
            # gRPC takes bytes where a name ends so, and text elsewhere.
            metadata = tuple(
                (name, value.encode() if name.endswith("-bin") else value)
                for name, value in {**self._options.headers, **self._credentials.headers()}.items()
            )
            packing = grpc.Compression.Gzip if self._options.gzip else grpc.Compression.NoCompression
            answer = await export(
                body, timeout=self._options.timeout_s, metadata=metadata, compression=packing
            )
        except CredentialsError as error:
            return Reply("Retry", reason=str(error))
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            wished_s = _asked_delay_s(error)
            is_for_now = code in _RETRYABLE_GRPC or (code == _EXHAUSTED and wished_s is not None)
            verdict: Literal["Retry", "Refused"] = "Retry" if is_for_now else "Refused"
            return Reply(verdict, reason=f"gRPC {code}", retry_after_s=wished_s or 0.0)
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


def connect(
    config: TelemetryConfig, options: ExportOptions = USUAL, signal: Signal = TRACES
) -> Transport | None:
    """Return the transport that the configuration asks for; None where there is no collector."""
    if config.endpoint is None:
        return None
    make = GrpcTransport if config.protocol == "GRPC" else HttpTransport
    return make(config.endpoint, Credentials.of(config), options, signal)


def _rejected(answer: bytes) -> int:
    """Return how many spans the collector refused; an answer that is no protobuf refuses none.

    Answers about metrics have the same fields.
    """
    try:
        return ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans
    except DecodeError:
        return 0


async def _packed(body: bytes) -> bytes:
    if len(body) < _LARGE:
        return gzip.compress(body, _FAST_LEVEL, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _FAST_LEVEL, mtime=0)


def _seconds(retry_after: str) -> float:
    """Return what Retry-After asks for, in seconds or as a date; 0 where it says neither."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except (ValueError, IndexError):
        return 0.0
    return max(0.0, until.timestamp() - time.time())


def _asked_delay_s(error: grpc.aio.AioRpcError) -> float | None:
    """Return how long a collector asks to wait by RetryInfo, None where it does not."""
    info = RetryInfo()
    details = [value for name, value in error.trailing_metadata() or () if name == _DETAILS]
    try:
        for detail in Status.FromString(bytes(details[0])).details if details else ():
            if detail.Unpack(info):
                return float(max(0.0, info.retry_delay.ToTimedelta().total_seconds()))
    except (DecodeError, TypeError, OverflowError):
        pass
    return None
