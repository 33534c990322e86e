"""Requests' traces: a small OpenTelemetry collector on localhost, and each trace as a tree of text."""

import gzip
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SETTLE_S: Final = 1.0  # spans of one request come from two exporters; this long without another: it is whole
LATEST_S: Final = 8.0  # and so long a trace waits for the engine's and the decode's

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
    ("guidedmodel.decode.drafts.taken", "drafts taken"),
    ("guidedmodel.decode.drafts.proposed", "proposed"),
    ("guidedmodel.decode.drafts.forbidden", "forbidden"),
    ("guidedmodel.decode.drafts.accepted", "accepted"),
)


@dataclass(slots=True)
class _Trace:
    """What has come of a trace, and when the last of it did."""

    spans: list[Span] = field(default_factory=list)
    last_s: float = 0.0

    def is_whole(self, now_s: float) -> bool:
        """Say whether its root came, and no more spans are coming."""
        root = next(filter(_is_root, self.spans), None)
        quiet_s = now_s - self.last_s
        if root is None or quiet_s < SETTLE_S:
            return False
        told, names = attributes(root), {span.name for span in self.spans}
        return (
            told.get(_STATUS, 0) >= 400  # vLLM makes no span for a request that it never began
            or (_ENGINE_SPAN in names and (_DECODE_SPAN in names or _GRAMMAR_KIND not in told))
            or quiet_s > LATEST_S
        )


def _is_root(span: Span) -> bool:
    # vLLM calls its own span, which is inside the request's, one of a server too.
    return bool(span.kind == Span.SPAN_KIND_SERVER and span.name != _ENGINE_SPAN)


def attributes(span: Span) -> dict[str, Any]:
    """Return a span's attributes."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in span.attributes}


class TraceBook:
    """Collects spans from any thread and hands out the traces that are whole; times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: dict[bytes, _Trace] = defaultdict(_Trace)

    def add(self, spans: Sequence[Span], now_s: float) -> None:
        """Take spans."""
        with self._lock:
            for span in spans:
                trace = self._traces[span.trace_id]
                trace.spans.append(span)
                trace.last_s = now_s

    def ripe(self, now_s: float) -> list[list[Span]]:
        """Return, once, each trace whose root came and to which no more spans are coming."""
        with self._lock:
            done = [trace_id for trace_id, trace in self._traces.items() if trace.is_whole(now_s)]
            return [self._traces.pop(trace_id).spans for trace_id in done]


class Collector(ThreadingHTTPServer):
    """Receives OTLP over HTTP on a free port of 127.0.0.1 while it is entered; `book` gets the spans."""

    def __init__(self, book: TraceBook) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.book = book

    @property
    def endpoint(self) -> str:
        """Base URL, as in spec.telemetry.endpoint."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Collector

    def do_POST(self) -> None:
        """Take one export."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/v1/traces":
            self.send_error(404)
            return
        try:
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            export = ExportTraceServiceRequest.FromString(body)
        except (DecodeError, OSError, EOFError):
            self.send_error(400)
            return
        scopes = (scope for resource in export.resource_spans for scope in resource.scope_spans)
        self.server.book.add([span for scope in scopes for span in scope.spans], time.monotonic())
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")  # so long is an answer that says nothing
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Stay silent; stderr is the user's."""


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
    lines = [f"trace {spans[0].trace_id.hex()}"]
    for label, span in rows:
        took_ms = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        lines.append(f"{label:<{width}}  {took_ms:>9.1f} ms{_details(span)}")
    return "\n".join(lines)


def _rows(
    children: Mapping[bytes, Sequence[Span]], parent: bytes, indent: str, *, top: bool = False
) -> Iterator[tuple[str, Span]]:
    siblings = children.get(parent, ())
    for number, span in enumerate(siblings, 1):
        last = number == len(siblings)
        branch, below = ("", "") if top else ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield f"{indent}{branch}{span.name}", span
        yield from _rows(children, span.span_id, indent + below)


def _details(span: Span) -> str:
    told = attributes(span)
    # A count of zero says nothing (no draft where nobody drafts); rank 0 does.
    shown = [
        f"{label} {told[key]}" for key, label in _SHOWN if key in told and (told[key] or label == "rank")
    ]
    return "  " + ", ".join(shown) if shown else ""
