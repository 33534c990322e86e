"""What goes wrong beside the requests, as traces of its own, exported whatever share of the requests' is.

The span of a request that it concerned has an event, and a link from or to it; what a logits processor
fails is below its request's span.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from opentelemetry.trace import Link, Span, SpanContext, Tracer, get_current_span

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode
from guided_contract.records import ProcessorFailure
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans

_MOST_REMEMBERED: Final = 1024  # a request ends, and all ranks tell of it, within seconds
_CODES: Final = frozenset(code.value for code in ErrorCode)


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
        compile_.add_event(c.WORKER_LOST, told)
        links = [Link(compile_.get_span_context())]  # the SDK leaves out one that is not valid
        span = self._tracer.start_span(c.WORKER_RESTART, spans.ALWAYS, attributes=told, links=links)
        self._lost.append((span, loss if is_fault else ""))

    def replaced(self) -> None:
        """Note that as many workers are at hand as there should be."""
        for span, error_code in self._lost:
            spans.end(span, error_code=error_code)
        self._lost.clear()


class Desyncs:
    """Tells of ranks that disagreed about a request."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # By request, its latest one until it has ended: span, ranks, and when.
        self._found: dict[str, tuple[SpanContext, str, int]] = {}

    def found(self, request_id: str, ranks: Sequence[int]) -> None:
        """Note that ranks differed from the others in a request, which is being ended."""
        since_ns, which = time.time_ns(), ",".join(map(str, ranks))
        told = {c.DESYNC_RANKS: which}
        span = self._tracer.start_span(c.RANKS_DESYNC, spans.ALWAYS, attributes=told, start_time=since_ns)
        spans.end(span, error_code=ErrorCode.RANKS_DESYNCHRONIZED.value)
        self._found[request_id] = span.get_span_context(), which, since_ns
        if len(self._found) > _MOST_REMEMBERED:
            del self._found[next(iter(self._found))]

    def ended(self, request_id: str, span: Span) -> None:
        """Have a request's span tell of its desync, if it had one."""
        if (desync := self._found.pop(request_id, None)) is not None:
            context, ranks, since_ns = desync
            span.add_link(context)
            span.add_event(c.RANKS_DESYNC, {c.DESYNC_RANKS: ranks}, since_ns)


class ProcessorFailures:
    """Takes ranks' failures, of each sequence the first one that comes.

    `counts` are the sequences that ended for each of the model's processors since the service started.

    Parameters
    ----------
    configs
        The model's processors.
    ranks
        How many ranks sample one sequence: the tensor-parallel size.
    """

    def __init__(self, configs: Sequence[LogitsProcessorConfig], ranks: int, tracer: Tracer) -> None:
        self.counts = Counter[str]()
        self._factories = {config.name: config.factory for config in configs}
        self._ranks = ranks
        self._tracer = tracer
        self._seen: dict[tuple[int, str], None] = {}

    def take(self, record: ProcessorFailure) -> None:
        """Count a failure and make its span, unless another rank has told of it."""
        key = record.rank // self._ranks, record.request_id
        if key in self._seen:
            return
        self._seen[key] = None
        if len(self._seen) > _MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        names = [name for name in dict.fromkeys(record.processors) if name in self._factories]
        self.counts.update(names)
        parent = spans.remote(record.traceparent, record.tracestate, within=spans.ALWAYS)
        span = self._tracer.start_span(
            c.PROCESSOR_FAILURE,
            parent,
            start_time=record.time_ns,
            attributes={
                c.RANK: record.rank,
                c.PROCESSOR_NAME: ",".join(names),
                c.PROCESSOR_FACTORY: ",".join(self._factories[name] for name in names),
                c.PROCESSOR_TOKEN: record.token,
                **({c.EXCEPTION_TYPE: record.error_type} if record.error_type else {}),
            },
        )
        spans.end(span, error_code=record.code if record.code in _CODES else "other", end_ns=record.time_ns)
