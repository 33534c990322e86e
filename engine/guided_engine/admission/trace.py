"""The span of an HTTP request, in the headers that came with it and in those that go on to vLLM."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from guided_contract import trace_context
from guided_contract.records import MOST_NAME
from guided_contract.trace_context import TraceContext

Headers = list[tuple[bytes, bytes]]
Scheme = Literal["http", "https"]
Server = tuple[str | None, int | None]
_NOWHERE: Final[Server] = (None, None)


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


def asked(scope: Mapping[str, Any]) -> tuple[Scheme, Server]:
    """Return by which scheme, and which host and port a client asked: its Host header, else this server's."""
    hosts = _values(scope["headers"], b"host")
    server: Server = _server(hosts[0]) if hosts else scope.get("server") or _NOWHERE
    return ("https" if scope.get("scheme") == "https" else "http"), server


def _server(host: str) -> Server:
    try:
        url = urlsplit(f"//{host}")
        address, port = url.hostname, url.port
    except ValueError:
        return _NOWHERE
    is_fit = address is not None and len(address) <= MOST_NAME and address.isascii()
    return (address, port or None) if is_fit else _NOWHERE


def _values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name.lower() == wanted]
