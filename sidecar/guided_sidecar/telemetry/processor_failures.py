"""Sequences that ended for their logits processors: a span for each, and counts for the status page."""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.trace import Tracer

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode
from guided_contract.records import ProcessorFailure
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans

# Ranks end a sequence in the same step, and their records come within seconds.
_MOST_REMEMBERED: Final = 1024
_CODES: Final = frozenset(code.value for code in ErrorCode)
_OTHER: Final = "other"


class ProcessorFailures:
    """Takes ranks' failures, of each sequence the first one that comes.

    Parameters
    ----------
    configs
        The model's processors.
    ranks
        How many ranks sample one sequence: the tensor-parallel size.
    tracer
        Makes each span.
    """

    def __init__(self, configs: Sequence[LogitsProcessorConfig], ranks: int, tracer: Tracer) -> None:
        self._factories = {config.name: config.factory for config in configs}
        self._ranks = ranks
        self._tracer = tracer
        self._counts = Counter[str]()
        self._seen: OrderedDict[tuple[int, str], None] = OrderedDict()

    @property
    def counts(self) -> Mapping[str, int]:
        """Return by processor how many sequences ended for it, since the service started."""
        return dict(self._counts)

    def take(self, record: ProcessorFailure) -> None:
        """Count a failure and make its span, unless another rank has told of it."""
        key = record.rank // self._ranks, record.request_id
        if key in self._seen:
            return
        self._seen[key] = None
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)
        names = [name for name in dict.fromkeys(record.processors) if name in self._factories]
        self._counts.update(names)
        parent = spans.remote(record.traceparent, record.tracestate)
        span = self._tracer.start_span(
            c.PROCESSOR_FAILURE,
            parent if spans.parent_of(parent).is_valid else spans.ALWAYS,
            start_time=record.time_ns,
            attributes={
                c.RANK: record.rank,
                c.PROCESSOR_NAME: ",".join(names),
                c.PROCESSOR_FACTORY: ",".join(self._factories[name] for name in names),
                c.PROCESSOR_TOKEN: record.token,
                **({c.EXCEPTION_TYPE: record.error_type} if record.error_type else {}),
            },
        )
        spans.end(span, error_code=record.code if record.code in _CODES else _OTHER, end_ns=record.time_ns)
