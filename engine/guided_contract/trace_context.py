"""W3C trace context for processes that begin or hand on a trace and export none, without a tracer."""

import re
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

_MOST_TRACESTATE: Final = 8192  # the SDK's propagator reads none that is longer
Tracestate = Annotated[str, msgspec.Meta(max_length=_MOST_TRACESTATE)]

SAMPLED: Final = 0x01
_RANDOM: Final = 0x02  # the trace id was drawn, so that samplers may decide by it
_FLAGS: Final = SAMPLED | _RANDOM  # others mean nothing yet, and are not handed on
_RATIO_BITS: Final = 64  # of a trace id, by which the SDK's ratio sampler decides
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request's span stands, as texts: what it carries to the ranks, a plain mapping."""

    traceparent: str | None = None
    tracestate: Tracestate | None = None


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where a span stands. Ids are lowercase hex as in traceparent; `tracestate` is the caller's text."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    parent_span_id: str | None = None
    tracestate: str | None = None

    @property
    def traceparent(self) -> str:
        """The text by which others become children of this span."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def carried(self) -> dict[str, Any]:
        """What messages to sidecar and ranks have of it."""
        return {"traceparent": self.traceparent, "tracestate": self.tracestate}

    def child(self) -> "TraceContext":
        """Return the context of a new span below this one."""
        return TraceContext(self.trace_id, secrets.token_hex(8), self.flags, self.span_id, self.tracestate)


def parse(traceparent: str, tracestate: str | None = None) -> TraceContext | None:
    """Return what a caller says; None where `traceparent` is not valid. A tracestate too long is dropped."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # Version ff is reserved; those after 00 may carry more fields, which are ignored.
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    if tracestate is not None and len(tracestate) > _MOST_TRACESTATE:
        tracestate = None
    return TraceContext(trace_id, span_id, int(flags, 16) & _FLAGS, tracestate=tracestate)


def new(ratio: float) -> TraceContext:
    """Return the root of a new trace, of which the share `ratio` (0 to 1) is sampled."""
    trace_id = secrets.token_hex(16)
    sampled = int(trace_id, 16) % (1 << _RATIO_BITS) < ratio * (1 << _RATIO_BITS)
    return TraceContext(trace_id, secrets.token_hex(8), _RANDOM | (SAMPLED if sampled else 0))
