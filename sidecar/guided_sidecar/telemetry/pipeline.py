"""The sidecar's telemetry: records of the engine's processes in, spans and counts out."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry, Counter

from guided_contract import records
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.otel_variables import traces_url
from guided_contract.records import Decode, Digests, HttpRequest
from guided_sidecar.telemetry import conventions, record_spans, spans
from guided_sidecar.telemetry.metrics import SidecarMetrics

FLUSH_DEADLINE_S: Final = 5.0  # of a pod's 30 s to end, after the engine has gone
_DATAGRAM_BYTES: Final = 64 << 10
# A unix socket queues few datagrams (net.unix.max_dgram_qlen, 10 in a pod), so they are taken many at a
# time; the bound lets other tasks run during a flood.
_DATAGRAMS_PER_WAKE: Final = 256

_log: Final = logging.getLogger(__name__)


class Telemetry:
    """What the sidecar's parts tell by, a `tracer` and `metrics`, and the way out. Make it after any fork.

    It also takes what other processes tell, the ranks' digests too (`on_digests`): records on a unix datagram
    socket, made anew at `start` with mode 0600. Where all goes is in the environment, as
    `otel_variables.environment` makes it.
    """

    def __init__(self, config: PodConfig, on_digests: Callable[[Digests], None]) -> None:
        self._path = config.telemetry_socket
        self._on_digests = on_digests
        self._ranks = config.tensor_parallel
        self._socket: socket.socket | None = None
        resource = Resource.create({}, conventions.SCHEMA_URL)
        is_traced = config.telemetry.endpoint is not None
        self.metrics = SidecarMetrics(config.tensor_parallel)
        # Without a collector the contexts of other processes' traces still travel, and no trace begins here.
        self.provider = spans.provider(resource, share=config.telemetry.sampling if is_traced else 0.0)
        self.provider.add_span_processor(self.metrics.spans)
        if (way_out := span_processor(config.telemetry, self.metrics.registry)) is not None:
            self.provider.add_span_processor(way_out)
        self.tracer = spans.tracer(self.provider)

    async def start(self) -> None:
        """Listen for records.

        Raises
        ------
        OSError
            The folder is missing or not writable, or the path is too long for a socket.
        """
        # Beside the path, then renamed: nobody can connect before the mode is right, or find no socket.
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(fresh))
        fresh.chmod(0o600)
        fresh.replace(self._path)
        asyncio.get_running_loop().add_reader(self._socket, self._read_some, self._socket)

    async def stop(self, deadline_s: float = FLUSH_DEADLINE_S) -> None:
        """Take what has arrived, and send what is left for at most `deadline_s`.

        The socket's file stays: it may be a successor's by now.
        """
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._read_some(self._socket)
            self._socket.close()
            self._socket = None
        # In a thread that ends with the process: a collector that does not answer takes longer.
        sending = threading.Thread(target=self.provider.shutdown, daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, deadline_s)

    def _read_some(self, source: socket.socket) -> None:
        # All are fetched before the first is looked at, because senders lose what finds the queue full.
        arrived: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(arrived) < _DATAGRAMS_PER_WAKE:
                arrived.append(source.recv(_DATAGRAM_BYTES))
        for datagram in arrived:
            self.take(datagram)

    def take(self, datagram: bytes) -> None:
        """Make spans and counts of what a process sent; what is no record is counted."""
        try:
            record = records.decode(datagram)
        except ValueError:
            self.metrics.take_garbage()
            return
        self.metrics.take(record)
        match record:
            case HttpRequest():
                record_spans.make_request(self.tracer, record)
            case Digests():
                self._on_digests(record)
            # Those of other ranks of a sequence tell the same.
            case Decode() if record.rank % self._ranks == 0:
                record_spans.make_decode(self.tracer, record)


def span_processor(telemetry: TelemetryConfig, registry: CollectorRegistry) -> SpanProcessor | None:
    """Return what sends spans to the collector and counts them; None where there is none to send to."""
    url = traces_url(telemetry)
    if url is None:
        return None
    make = GrpcExporter if telemetry.protocol == "GRPC" else HttpExporter
    try:
        return BatchSpanProcessor(CountedExporter(make(endpoint=url), registry))
    except Exception as error:  # noqa: BLE001 - traces are not worth a pod: grpc's have bases of their own
        _log.error("traces are off, for what a variable of OpenTelemetry says: %s", error)
        return None


class CountedExporter(SpanExporter):
    """Another exporter, of which is counted what the collector took."""

    def __init__(self, exporter: SpanExporter, registry: CollectorRegistry) -> None:
        self._exporter = exporter
        self._exported = Counter(
            "guidedmodel_spans_exported", "Spans that the collector accepted", registry=registry
        )
        self._dropped = Counter(
            "guidedmodel_spans_dropped", "Spans that the collector did not accept in time", registry=registry
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            count = self._exported if result is SpanExportResult.SUCCESS else self._dropped
            count.inc(len(spans))
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._exporter.shutdown()
