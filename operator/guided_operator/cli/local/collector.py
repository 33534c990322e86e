"""A small OpenTelemetry collector on localhost, so that a laptop needs none: OTLP over HTTP."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from guided_operator.cli.local.traces import ENGINE_SPAN, Span, TraceBook, Value

MAX_BODY_BYTES: Final = 16 << 20
_PATH: Final = "/v1/traces"


class Collector:
    """Receives traces on a free port of 127.0.0.1 until it is closed.

    Parameters
    ----------
    book
        Gets the spans.
    forward
        Gets each export's bytes besides; must not block.
    """

    def __init__(self, book: TraceBook, forward: Callable[[bytes], None] = lambda _body: None) -> None:
        class Handler(_Handler):
            traces = book
            passed_on = staticmethod(forward)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Base URL, as in spec.telemetry.otlp.endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop receiving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    traces: TraceBook
    passed_on: Callable[[bytes], None]

    def do_POST(self) -> None:
        """Take one export."""
        if self.path != _PATH:
            self._answer(404)
            return
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            self._answer(413)
            return
        body = self.rfile.read(length)
        try:
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            spans = decode(body)
        except (DecodeError, OSError, EOFError):
            self._answer(400)
            return
        self.traces.add(spans, time.monotonic())
        self.passed_on(body)
        self._answer(200, ExportTraceServiceResponse().SerializeToString())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Stay silent; stderr is the user's."""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def decode(body: bytes) -> list[Span]:
    """Return the spans of an OTLP trace export in protobuf.

    Raises
    ------
    DecodeError
        The bytes are no such export.
    """
    return list(_spans(ExportTraceServiceRequest.FromString(body)))


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    # vLLM calls its own span, which is inside the request's, one of a server too.
                    is_root=span.kind == trace_pb2.Span.SPAN_KIND_SERVER and span.name != ENGINE_SPAN,
                    attributes={entry.key: _value(entry.value) for entry in span.attributes},
                )


def _value(value: AnyValue) -> Value:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case _:
            return str(value).strip()
