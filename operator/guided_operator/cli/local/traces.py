"""Requests' traces: a small OpenTelemetry collector on localhost, and each trace as a tree of text."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SETTLE_S: Final = 1.0  # spans of one request come from two exporters; this long without another: it is whole
LATEST_S: Final = 8.0  # and so long a trace waits for the engine's and the decode's
PATH: Final = "/v1/traces"

_ENGINE_SPAN: Final = "llm_request"
_DECODE_SPAN: Final = "guided.decode"
_GRAMMAR_KIND: Final = "guidedmodel.grammar.kind"
_STATUS: Final = "http.response.status_code"
# What a line shows of its span, in this order, and how it calls it.
_SHOWN: Final = (
    (_STATUS, "status"),
    ("error.type", "error"),
    ("guidedmodel.rank", "rank"),
    (_GRAMMAR_KIND, "kind"),
    ("guidedmodel.grammar.backend", "backend"),
    ("guidedmodel.decode.tokens", "tokens"),
    ("guidedmodel.decode.steps", "steps"),
    ("guidedmodel.decode.end_reason", "end"),
    ("gen_ai.usage.prompt_tokens", "prompt tokens"),
    ("gen_ai.usage.completion_tokens", "completion tokens"),
)
_DRAFTS: Final = "guidedmodel.decode.drafts."  # what became of them: proposed, accepted, refused


class TraceBook:
    """Collects spans from any thread and hands out the traces that are whole; times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[bytes, list[Span]] = {}
        self._last_s: dict[bytes, float] = {}
        self._root_s: dict[bytes, float] = {}

    def add(self, spans: Sequence[Span], now_s: float) -> None:
        """Take spans."""
        with self._lock:
            for span in spans:
                self._spans.setdefault(span.trace_id, []).append(span)
                self._last_s[span.trace_id] = now_s
                if _is_root(span):
                    self._root_s.setdefault(span.trace_id, now_s)

    def ripe(self, now_s: float) -> list[list[Span]]:
        """Return, once, each trace whose root came and to which no more spans are coming."""
        with self._lock:
            done = [trace_id for trace_id in self._root_s if self._is_whole(trace_id, now_s)]
            for trace_id in done:
                del self._last_s[trace_id], self._root_s[trace_id]
            return [self._spans.pop(trace_id) for trace_id in done]

    def _is_whole(self, trace_id: bytes, now_s: float) -> bool:
        if now_s - self._last_s[trace_id] < SETTLE_S:
            return False
        spans = {span.name: span for span in self._spans[trace_id]}
        root = attributes(next(span for span in self._spans[trace_id] if _is_root(span)))
        return (
            root.get(_STATUS, 0) >= 400  # vLLM makes no span for a request that it never began
            or (_ENGINE_SPAN in spans and (_DECODE_SPAN in spans or _GRAMMAR_KIND not in root))
            or now_s - self._root_s[trace_id] > LATEST_S
        )


def _is_root(span: Span) -> bool:
    # vLLM calls its own span, which is inside the request's, one of a server too.
    return bool(span.kind == Span.SPAN_KIND_SERVER and span.name != _ENGINE_SPAN)


def attributes(span: Span) -> dict[str, Any]:
    """Return a span's attributes."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in span.attributes}


class Collector:
    """Receives OTLP over HTTP on a free port of 127.0.0.1 until it is closed.

    `book` gets the spans, and `forward` each export's bytes.
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
        """Base URL, as in spec.telemetry.endpoint."""
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
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != PATH:
            self._answer(404)
            return
        try:
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            export = ExportTraceServiceRequest.FromString(body)
        except (DecodeError, OSError, EOFError):
            self._answer(400)
            return
        scopes = (scope for resource in export.resource_spans for scope in resource.scope_spans)
        self.traces.add([span for scope in scopes for span in scope.spans], time.monotonic())
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


def tree(spans: Sequence[Span]) -> str:
    """Return one trace as lines: the trace's id, then each span below its parent, with its milliseconds.

    Spans whose parent is not there stand at the top, the earliest first.
    """
    known = {span.span_id for span in spans}
    children: dict[bytes, list[Span]] = {}
    for span in sorted(spans, key=lambda one: (one.start_time_unix_nano, one.name, one.span_id)):
        parent = span.parent_span_id if span.parent_span_id in known else b""
        children.setdefault(parent, []).append(span)
    rows = list(_rows(children, b"", "", top=True))
    width = max(len(label) for label, _ in rows)
    lines = [f"{label:<{width}}  {_took_ms(span):>9.1f} ms{_details(span)}" for label, span in rows]
    return "\n".join([f"trace {spans[0].trace_id.hex()}", *lines])


def _rows(
    children: Mapping[bytes, Sequence[Span]], parent: bytes, indent: str, *, top: bool = False
) -> Iterator[tuple[str, Span]]:
    siblings = children.get(parent, ())
    for number, span in enumerate(siblings, 1):
        last = number == len(siblings)
        branch, below = ("", "") if top else ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield f"{indent}{branch}{span.name}", span
        yield from _rows(children, span.span_id, indent + below)


def _took_ms(span: Span) -> float:
    return float(span.end_time_unix_nano - span.start_time_unix_nano) / 1e6


def _details(span: Span) -> str:
    told = attributes(span)
    # A count of zero says nothing (no draft where nobody drafts); rank 0 does.
    shown = [
        f"{label} {told[key]}" for key, label in _SHOWN if key in told and (told[key] or label == "rank")
    ]
    drafts = [
        f"{key.removeprefix(_DRAFTS)} {value}"
        for key, value in sorted(told.items(), reverse=True)
        if key.startswith(_DRAFTS) and value
    ]
    if drafts:
        shown.append(f"drafts {', '.join(drafts)}")
    return "  " + ", ".join(shown) if shown else ""
