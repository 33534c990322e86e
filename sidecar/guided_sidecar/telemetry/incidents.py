"""What goes wrong beside the requests, as spans of their own with links to the requests that it concerned.

Each is a trace of its own, exported whatever share of the requests' traces is. A request's own span has an
event.
"""

import asyncio
import contextvars
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from guided_contract.errors import ErrorCode
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry.spans import (
    NO_ATTRIBUTES,
    Attributes,
    Event,
    FinishedSpan,
    OpenSpan,
    SpanContext,
    Spans,
    new_span_id,
    new_trace_id,
    parse,
)

# A request ends within milliseconds of its desync, and its ranks' records may take ten seconds.
PATIENCE_S: Final = 15.0
# The span of the compile that the running task waits for.
compiling: contextvars.ContextVar[OpenSpan | None] = contextvars.ContextVar("guided_compiling", default=None)


class WorkerRestarts:
    """Tells of grammar workers that were lost, until others are in their place."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._lost: list[tuple[int, str, bool, SpanContext | None]] = []

    def lost(self, loss: str, *, is_fault: bool) -> None:
        """Note that a worker has gone before its time; `is_fault`: nobody ordered it."""
        span = compiling.get()
        if span is not None:
            span.event(c.WORKER_LOST, {c.WORKER_LOSS: loss})
        compile_ = None if span is None else parse(span.traceparent)
        self._lost.append((time.time_ns(), loss, is_fault, compile_))

    def replaced(self) -> None:
        """Note that as many workers are at hand as there should be."""
        for since_ns, loss, is_fault, compile_ in self._lost:
            self._spans.record(
                _incident(
                    c.WORKER_RESTART,
                    since_ns,
                    attributes={c.WORKER_LOSS: loss},
                    link=compile_,
                    error_code=loss if is_fault else "",
                )
            )
        self._lost.clear()


@dataclass(frozen=True, slots=True)
class _Desync:
    context: SpanContext
    since_ns: int
    ranks: str
    timer: asyncio.TimerHandle


class Desyncs:
    """Tells of ranks that disagreed about a request, and what follows from it.

    Parameters
    ----------
    patience_s
        How long the end of the request is waited for.
    """

    def __init__(self, spans: Spans, *, patience_s: float = PATIENCE_S) -> None:
        self._spans = spans
        self._patience_s = patience_s
        self._open: OrderedDict[str, _Desync] = OrderedDict()  # request -> the latest one

    def found(self, request_id: str, ranks: Sequence[int]) -> None:
        """Note that ranks differed from the others in a request, which is being ended."""
        self._close(request_id)  # another one's of that name
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._close, request_id)
        self._open[request_id] = _Desync(_new(), time.time_ns(), ",".join(map(str, ranks)), timer)

    def fell_back(self) -> None:
        """Note that from now on vLLM's own scheduler masks new requests, because of the last desync."""
        last = next(reversed(self._open.values()), None)
        link = None if last is None else last.context
        self._spans.record(_incident(c.PLACEMENT_FALLBACK, time.time_ns(), link=link))

    def ended(self, request_id: str, span: SpanContext) -> tuple[Event, ...]:
        """Return what a request's span has to tell of a desync; it is told with a link to that span."""
        desync = self._close(request_id, span)
        if desync is None:
            return ()
        return (Event(c.RANKS_DESYNC, desync.since_ns, {c.DESYNC_RANKS: desync.ranks}),)

    def flush(self) -> None:
        """Tell of everything that is open."""
        for request_id in list(self._open):
            self._close(request_id)

    def _close(self, request_id: str, span: SpanContext | None = None) -> _Desync | None:
        desync = self._open.pop(request_id, None)
        if desync is not None:
            desync.timer.cancel()
            self._spans.record(
                _incident(
                    c.RANKS_DESYNC,
                    desync.since_ns,
                    context=desync.context,
                    attributes={c.DESYNC_RANKS: desync.ranks},
                    link=span,
                    error_code=ErrorCode.RANKS_DESYNCHRONIZED.value,
                )
            )
        return desync


def _new() -> SpanContext:
    return SpanContext(new_trace_id(), new_span_id(), sampled=True)


def _incident(  # noqa: PLR0913 - what a span has
    name: str,
    start_ns: int,
    *,
    context: SpanContext | None = None,
    attributes: Attributes = NO_ATTRIBUTES,
    link: SpanContext | None = None,
    error_code: str = "",
) -> FinishedSpan:
    return FinishedSpan(
        name=name,
        context=context or _new(),
        parent_span_id=None,
        start_ns=start_ns,
        end_ns=time.time_ns(),
        error_code=error_code,
        attributes=attributes,
        links=() if link is None else (link,),
    )
