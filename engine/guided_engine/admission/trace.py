"""W3C trace context, as far as one HTTP request needs it."""

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Headers = list[tuple[bytes, bytes]]

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED: Final = 0x01
_RATIO_BITS: Final = 56  # the random part of a trace id, by which OpenTelemetry's ratio samplers decide


@dataclass(frozen=True, slots=True)
class Span:
    """A span of ours: its ids, and its parent's where a caller sent one. Ids are lowercase hex."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The header by which others become children of this span."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def begin(headers: Iterable[tuple[bytes, bytes]], ratio: float) -> Span:
    """Start the span of a request: below the caller's span where the headers name one, else a new trace.

    A caller's decision to sample or not is kept; `ratio` (0 to 1) decides for new traces.
    """
    sent = [value for name, value in headers if name.lower() == b"traceparent"]
    match = _TRACEPARENT.fullmatch(sent[0].decode("latin-1").strip()) if len(sent) == 1 else None
    if match and match[1] != "ff" and int(match[2], 16) and int(match[3], 16):
        sampled = bool(int(match[4], 16) & _SAMPLED)
        return Span(match[2], secrets.token_hex(8), match[3], sampled)
    trace_id = secrets.token_hex(16)
    sampled = int(trace_id, 16) % (1 << _RATIO_BITS) < ratio * (1 << _RATIO_BITS)
    return Span(trace_id, secrets.token_hex(8), None, sampled)


def continued(headers: Headers, span: Span) -> Headers:
    """Return the headers with `span` in place of the caller's, so that vLLM's spans become its children."""
    ours = (b"traceparent", span.traceparent.encode())
    dropped = {b"traceparent"} if span.parent_span_id else {b"traceparent", b"tracestate"}
    return [(name, value) for name, value in headers if name.lower() not in dropped] + [ours]
