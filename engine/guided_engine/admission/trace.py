"""The span of an HTTP request, in the headers that came with it and in those that go on to vLLM."""

import contextlib
from collections.abc import Iterable, MutableMapping
from typing import Any, Literal

from starlette.datastructures import URL

from guided_contract import trace_context
from guided_contract.records import MOST_NAME
from guided_contract.trace_context import TraceContext

Headers = list[tuple[bytes, bytes]]
Scheme = Literal["http", "https"]
Server = tuple[str | None, int | None]


def begin(headers: Iterable[tuple[bytes, bytes]], ratio: float) -> TraceContext:
    """Start the span of a request: below the caller's span where the headers name one, else a new trace.

    A caller's decision to sample or not is kept; `ratio` (0 to 1) decides for new traces.
    """
    headers = list(headers)
    parents = _values(headers, b"traceparent")
    caller = None
    if len(parents) == 1:
        caller = trace_context.parse(parents[0].strip(), ",".join(_values(headers, b"tracestate")) or None)
    return trace_context.new(ratio) if caller is None else caller.child()


def continued(headers: Headers, span: TraceContext) -> Headers:
    """Return the headers with `span` in place of the caller's, so that vLLM's spans become its children."""
    ours = (b"traceparent", span.traceparent.encode())
    dropped = {b"traceparent"} if span.parent_span_id else {b"traceparent", b"tracestate"}
    return [(name, value) for name, value in headers if name.lower() not in dropped] + [ours]


def asked(scope: MutableMapping[str, Any]) -> tuple[Scheme, Server]:
    """Return by which scheme, and which host and port a client asked: its Host header, else this server's."""
    scheme, address, port = "http", None, None
    with contextlib.suppress(ValueError):  # a port that is none, a query that is not UTF-8
        url = URL(scope=scope)
        scheme, address, port = url.scheme, url.hostname, url.port
    is_fit = address is not None and len(address) <= MOST_NAME and address.isascii()
    server: Server = (address, port or None) if is_fit else (None, None)
    return ("https" if scheme == "https" else "http"), server


def _values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name.lower() == wanted]


def carried(span: TraceContext | None) -> dict[str, Any]:
    """Return a span as the messages to sidecar and ranks have it; of none, nothing."""
    return {} if span is None else {"traceparent": span.traceparent, "tracestate": span.tracestate}
