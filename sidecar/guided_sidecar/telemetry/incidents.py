"""What goes wrong beside the requests, as spans of their own with links to the requests that it concerned.

Each is a trace of its own, exported whatever share of the requests' traces is. A request's own span has an
event.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Link, Span, Tracer, get_current_span

from guided_contract.errors import ErrorCode
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans

# A request ends within milliseconds of its desync, and its ranks' records may take ten seconds.
PATIENCE_S: Final = 15.0


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


@dataclass(frozen=True, slots=True)
class _Desync:
    span: Span
    since_ns: int
    ranks: str
    timer: asyncio.TimerHandle


class Desyncs:
    """Tells of ranks that disagreed about a request.

    Parameters
    ----------
    patience_s
        How long the end of the request is waited for.
    """

    def __init__(self, tracer: Tracer, *, patience_s: float = PATIENCE_S) -> None:
        self._tracer = tracer
        self._patience_s = patience_s
        self._open: OrderedDict[str, _Desync] = OrderedDict()  # request -> the latest one

    def found(self, request_id: str, ranks: Sequence[int]) -> None:
        """Note that ranks differed from the others in a request, which is being ended."""
        self._close(request_id)  # another one's of that name
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._close, request_id)
        since_ns, which = time.time_ns(), ",".join(map(str, ranks))
        told = {c.DESYNC_RANKS: which}
        span = self._tracer.start_span(c.RANKS_DESYNC, spans.ALWAYS, attributes=told, start_time=since_ns)
        self._open[request_id] = _Desync(span, since_ns, which, timer)

    def ended(self, request_id: str, span: Span) -> None:
        """Have a request's span tell of its desync, if it had one, and this one's end with a link to it."""
        desync = self._close(request_id, span)
        if desync is not None:
            span.add_event(c.RANKS_DESYNC, {c.DESYNC_RANKS: desync.ranks}, desync.since_ns)

    def flush(self) -> None:
        """Tell of everything that is open."""
        for request_id in list(self._open):
            self._close(request_id)

    def _close(self, request_id: str, concerned: Span | None = None) -> _Desync | None:
        desync = self._open.pop(request_id, None)
        if desync is not None:
            desync.timer.cancel()
            if concerned is not None:
                desync.span.add_link(concerned.get_span_context())
            spans.end(desync.span, error_code=ErrorCode.RANKS_DESYNCHRONIZED.value)
        return desync
