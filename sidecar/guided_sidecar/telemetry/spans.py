"""Spans as the sidecar makes them, apart from where they go.

`Spans` is what makers of spans see; `MemorySpans` is its in-memory fake, `otlp_spans.OtlpSpans` the real one.
A span becomes data (`FinishedSpan`) when it ends; parents are W3C traceparent texts, because that is
what travels between the pod's processes.
"""

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Protocol

AttributeValue = str | int | float | bool
Attributes = Mapping[str, AttributeValue]
SpanKind = Literal["internal", "server"]

NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})

# Version ff is reserved; later versions may carry more fields, which a reader of version 00 ignores.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
# The system's generator: a service forked from its supervisor must not repeat the supervisor's ids.
_random: Final = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class SpanContext:
    """Where a span stands: 32 and 16 lowercase hex digits as in traceparent, and whether it is exported."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The context as a W3C traceparent."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"

    def child(self) -> "SpanContext":
        """Return the context of a new child span."""
        return SpanContext(self.trace_id, new_span_id(), self.sampled)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at one moment of a span, in CLOCK_REALTIME nanoseconds."""

    name: str
    time_ns: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSpan:
    """A span that has ended. Times are CLOCK_REALTIME nanoseconds; `error_code` is empty on success.

    `links` are spans of this or other traces that it has to do with, without being their child.
    """

    name: str
    context: SpanContext
    parent_span_id: str | None
    start_ns: int
    end_ns: int
    kind: SpanKind = "internal"
    error_code: str = ""
    attributes: Attributes = field(default_factory=dict)
    links: tuple[SpanContext, ...] = ()
    events: tuple[Event, ...] = ()


class OpenSpan(Protocol):
    """A span that runs."""

    @property
    def traceparent(self) -> str:
        """What children name as their parent."""

    def link(self, traceparent: str | None) -> None:
        """Link another span; None or no valid one: none."""

    def event(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Note that something happened now."""

    def end(
        self, *, error_code: str = "", end_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """End the span, adding `attributes`; a second call does nothing.

        Parameters
        ----------
        error_code
            A code of the error catalogue; the span's status is then an error.
        end_ns
            CLOCK_REALTIME nanoseconds; None: now.
        """


class Spans(Protocol):
    """Makes spans; never blocks and never raises for want of a collector."""

    def start(
        self,
        name: str,
        *,
        traceparent: str | None,
        start_ns: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> OpenSpan:
        """Start a span below `traceparent`; None or no valid one: the root of a trace of its own."""

    def record(self, span: FinishedSpan) -> None:
        """Take a span whose ids and times were chosen elsewhere."""


class RunningSpan:
    """The OpenSpan of every Spans: keeps what is known at the start, and hands over a FinishedSpan."""

    def __init__(self, spans: Spans, started: FinishedSpan) -> None:
        self._spans = spans
        self._started: FinishedSpan | None = started
        self._context = started.context
        self._links: list[SpanContext] = []
        self._events: list[Event] = []

    @property
    def traceparent(self) -> str:
        """What children name as their parent."""
        return self._context.traceparent

    def link(self, traceparent: str | None) -> None:
        """Link another span; see OpenSpan.link."""
        other = parse(traceparent)
        if other is not None:
            self._links.append(other)

    def event(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Note that something happened now."""
        self._events.append(Event(name, time.time_ns(), attributes))

    def end(
        self, *, error_code: str = "", end_ns: int | None = None, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """End the span; see OpenSpan.end."""
        started, self._started = self._started, None
        if started is None:
            return
        self._spans.record(
            FinishedSpan(
                name=started.name,
                context=started.context,
                parent_span_id=started.parent_span_id,
                start_ns=started.start_ns,
                end_ns=time.time_ns() if end_ns is None else end_ns,
                error_code=error_code,
                attributes={**started.attributes, **attributes},
                links=tuple(self._links),
                events=tuple(self._events),
            )
        )


@dataclass(slots=True)
class MemorySpans:
    """Keeps finished spans in a list, for tests; unsampled ones too."""

    finished: list[FinishedSpan] = field(default_factory=list)

    def start(
        self,
        name: str,
        *,
        traceparent: str | None,
        start_ns: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> OpenSpan:
        """Start a span; a root is sampled."""
        return running(self, name, parse(traceparent), sampled=True, start_ns=start_ns, attributes=attributes)

    def record(self, span: FinishedSpan) -> None:
        """Keep the span."""
        self.finished.append(span)

    def named(self, name: str) -> list[FinishedSpan]:
        """Return the finished spans of that name, in the order of their ends."""
        return [span for span in self.finished if span.name == name]


def running(  # noqa: PLR0913 - what a span has at its start
    spans: Spans,
    name: str,
    parent: SpanContext | None,
    *,
    sampled: bool,
    start_ns: int | None,
    attributes: Attributes,
) -> RunningSpan:
    """Return a started span below `parent`, for implementations of Spans; a root is `sampled` as told."""
    context = parent.child() if parent else SpanContext(new_trace_id(), new_span_id(), sampled)
    begin = time.time_ns() if start_ns is None else start_ns
    started = FinishedSpan(
        name=name,
        context=context,
        parent_span_id=parent.span_id if parent else None,
        start_ns=begin,
        end_ns=begin,
        attributes=attributes,
    )
    return RunningSpan(spans, started)


def parse(traceparent: str | None) -> SpanContext | None:
    """Return what a W3C traceparent says; None where there is none or it is not valid."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return SpanContext(match[1], match[2], bool(int(match[3], 16) & 1))


def new_trace_id() -> str:
    """Return a random trace id that is not zero."""
    return f"{_random.randrange(1, 1 << 128):032x}"


def new_span_id() -> str:
    """Return a random span id that is not zero."""
    return f"{_random.randrange(1, 1 << 64):016x}"
