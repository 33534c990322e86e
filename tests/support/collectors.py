"""Real OTLP collectors in this process: they decode the protobuf and keep the spans."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web
from devtools.process import free_ports
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.waiting import until as eventually  # noqa: F401 - what tests of a collector wait with


@dataclass(frozen=True, slots=True)
class Received:
    """A span as it arrived: ids in hex, attributes of its resource and its own, ids of what it links."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    status: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]


@dataclass(slots=True)
class Kept:
    """What a collector received; `bodies` are the exports' bytes.

    `headers` are those of the last export, names in lower case.
    """

    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def add(self, request: ExportTraceServiceRequest) -> None:
        """Keep all spans of a request."""
        for group in request.resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_received(span, resource) for span in scope.spans]

    def named(self, name: str) -> list[Received]:
        """Return the spans of that name."""
        return [span for span in self.spans if span.name == name]


@dataclass(frozen=True, slots=True)
class Tls:
    """A collector's certificate and key, and who signs its clients' (PEM files)."""

    certificate: Path
    key: Path
    client_ca: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        return context

    def grpc(self) -> grpc.ServerCredentials:
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        return grpc.ssl_server_credentials([pair], self.client_ca.read_bytes(), require_client_auth=True)


class HttpCollector:
    """OTLP/HTTP on loopback. `status` is what it answers; it keeps spans only with 200.

    With `tls` it wants a certificate of its clients'.
    """

    protocol = "HTTP"

    def __init__(self, port: int, tls: Tls | None = None) -> None:
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self._tls = tls
        self.kept = Kept()
        self.status = 200
        self.requests = 0
        self._port = port
        app = web.Application()
        app.router.add_post("/v1/traces", self._export)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Listen."""
        await self._runner.setup()
        context = self._tls.context() if self._tls else None
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=context).start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _export(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.kept.headers = {name.lower(): value for name, value in request.headers.items()}
        if self.status == 200:
            self.kept.bodies.append(await request.read())
            self.kept.add(ExportTraceServiceRequest.FromString(self.kept.bodies[-1]))
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(status=self.status, body=body, content_type="application/x-protobuf")


class GrpcCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """OTLP/gRPC on loopback. With `tls` it wants a certificate of its clients'.

    `code` is what it answers; it keeps spans only with OK.
    """

    protocol = "GRPC"

    def __init__(self, port: int, tls: Tls | None = None) -> None:
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self.kept = Kept()
        self.code = grpc.StatusCode.OK
        self.requests = 0
        self._server = grpc.aio.server()
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        if tls is None:
            self._server.add_insecure_port(f"127.0.0.1:{port}")
        else:
            self._server.add_secure_port(f"127.0.0.1:{port}", tls.grpc())

    async def start(self) -> None:
        """Listen."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop(grace=None)

    async def Export(  # noqa: N802 - gRPC's name
        self, request: ExportTraceServiceRequest, context: grpc.aio.ServicerContext
    ) -> ExportTraceServiceResponse:
        """Keep a request's spans."""
        self.requests += 1
        self.kept.headers = {key: str(value) for key, value in context.invocation_metadata()}
        if self.code != grpc.StatusCode.OK:
            await context.abort(self.code, "not now")
        self.kept.bodies.append(request.SerializeToString())
        self.kept.add(request)
        return ExportTraceServiceResponse()


def _received(span: Span, resource: dict[str, Any]) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        status=span.status.code,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        resource=resource,
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


def _attributes(items: "list[KeyValue] | Any") -> dict[str, Any]:
    return {item.key: _value(item.value) for item in items}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


Collector = HttpCollector | GrpcCollector


@contextlib.contextmanager
def collecting() -> Iterator[HttpCollector]:
    """Run a collector on a loop of its own, for tests that have none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    collector = HttpCollector(*free_ports(1))
    asyncio.run_coroutine_threadsafe(collector.start(), loop).result(20)
    try:
        yield collector
    finally:
        asyncio.run_coroutine_threadsafe(collector.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
