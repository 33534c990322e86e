"""The span of an HTTP request, in the headers that came with it and in those that go on to vLLM."""

from collections.abc import Iterable

from guided_contract import trace_context
from guided_contract.trace_context import TraceContext

Headers = list[tuple[bytes, bytes]]


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


def _values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name.lower() == wanted]
