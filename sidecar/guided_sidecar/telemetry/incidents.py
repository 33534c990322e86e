"""What goes wrong beside the requests, as traces of its own, exported whatever share of the requests' is.

The span of a request that it concerned has an event, and a link from or to it.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from opentelemetry.trace import Link, Span, SpanContext, Tracer, get_current_span

from guided_contract.errors import ErrorCode
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans

_MOST_REMEMBERED: Final = 1024  # a request ends within seconds of its desync


class WorkerRestarts:
    """Tells of grammar workers that were lost, until others are in their place."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._lost: list[tuple[Span, str]] = []

    def lost(self, loss: str, *, is_fault: bool) -> None:
        """Note that a worker has gone before its time; `is_fault`: nobody ordered it.

        The current span, if there is one, is that of the compile that it was lost in.
        """
        told = {c.WORKER_LOSS: loss}
        compile_ = get_current_span()
        if compile_.is_recording():
            compile_.add_event(c.WORKER_LOST, told)
        links = [Link(compile_.get_span_context())]  # the SDK leaves out one that is not valid
        span = self._tracer.start_span(c.WORKER_RESTART, spans.ALWAYS, attributes=told, links=links)
        self._lost.append((span, loss if is_fault else ""))

    def replaced(self) -> None:
        """Note that as many workers are at hand as there should be."""
        for span, error_code in self._lost:
            spans.end(span, error_code=error_code)
        self._lost.clear()


class _Desync(NamedTuple):
    context: SpanContext
    since_ns: int
    ranks: str


class Desyncs:
    """Tells of ranks that disagreed about a request, and what follows from it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._found: OrderedDict[str, _Desync] = (
            OrderedDict()
        )  # request -> its latest one, until it has ended

    def found(self, request_id: str, ranks: Sequence[int]) -> None:
        """Note that ranks differed from the others in a request, which is being ended."""
        since_ns, which = time.time_ns(), ",".join(map(str, ranks))
        told = {c.DESYNC_RANKS: which}
        span = self._tracer.start_span(c.RANKS_DESYNC, spans.ALWAYS, attributes=told, start_time=since_ns)
        spans.end(span, error_code=ErrorCode.RANKS_DESYNCHRONIZED.value)
        self._found[request_id] = _Desync(span.get_span_context(), since_ns, which)
        self._found.move_to_end(request_id)
        if len(self._found) > _MOST_REMEMBERED:
            self._found.popitem(last=False)

    def fell_back(self) -> None:
        """Note that from now on vLLM's own scheduler masks new requests, because of the last desync."""
        links = [Link(desync.context) for desync in list(self._found.values())[-1:]]
        spans.end(self._tracer.start_span(c.PLACEMENT_FALLBACK, spans.ALWAYS, links=links))

    def ended(self, request_id: str, span: Span) -> None:
        """Have a request's span tell of its desync, if it had one."""
        desync = self._found.pop(request_id, None)
        if desync is not None:
            span.add_link(desync.context)
            span.add_event(c.RANKS_DESYNC, {c.DESYNC_RANKS: desync.ranks}, desync.since_ns)
