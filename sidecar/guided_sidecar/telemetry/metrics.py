"""The sidecar's Prometheus metrics.

Labels hold codes, ranks, kinds and the resource's own names only: their number is bounded.
"""

from collections.abc import Collection
from typing import Final, get_args

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.openmetrics import exposition

from guided_contract import trace_context
from guided_contract.errors import ErrorCode
from guided_contract.records import (
    AnyRecord,
    Decode,
    DraftTokens,
    EndReason,
    HttpRequest,
    ProcessorFailure,
    ProcessorTimes,
)
from guided_contract.status import DraftsStatus
from guided_contract.trace_context import TraceContext
from guided_sidecar.telemetry.decode_counts import DecodeCounters
from guided_sidecar.telemetry.draft_tokens import DraftTokensMetrics
from guided_sidecar.telemetry.exemplars import Exemplars
from guided_sidecar.telemetry.processor_counts import ProcessorCounters
from guided_sidecar.telemetry.span_metrics import SpanMetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text"

_NS: Final = 1e9
# What a label may say about an end; anything else is "other".
_ENDS: Final = frozenset({"", *get_args(EndReason)} | {code.value for code in ErrorCode})
# Requests that end so asked for a grammar, though it may be unknown of which kind.
_ABOUT_GRAMMARS: Final = frozenset(code.value for code in ErrorCode if code.value.startswith("grammar_")) | {
    ErrorCode.REQUEST_NOT_ADMITTED.value,
    ErrorCode.REQUEST_UNKNOWN_CONSTRAINT.value,
}
_FILL_BUCKETS_S: Final = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
_REQUEST_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class SidecarMetrics:
    """Counts records, and renders all metrics of its registry.

    `registry` takes further collectors: each source of figures (exporter, health) registers one. `spans`
    measures those that end.

    Parameters
    ----------
    ranks
        How many ranks sample one sequence, and so count it: the tensor-parallel size.
    traced
        Whether traces are exported, which exemplars then name.
    processors
        Names of the model's logits processors.
    """

    def __init__(self, ranks: int = 1, *, traced: bool = False, processors: Collection[str] = ()) -> None:
        # Else each series has another that tells when it began: twice as many, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        self.registry = CollectorRegistry(auto_describe=False)
        self._ranks = ranks
        self._exemplars = Exemplars(are_kept=traced)
        self.spans = SpanMetrics(self.registry, self._exemplars)
        self._requests = Counter(
            "guidedmodel_requests",
            "HTTP requests on generating routes, by status, error code and kind of constraint",
            ("status", "error_code", "kind"),
            registry=self.registry,
        )
        self._duration = Histogram(
            "guidedmodel_request_duration_seconds",
            "Duration of HTTP requests on generating routes",
            ("kind",),
            buckets=_REQUEST_BUCKETS_S,
            registry=self.registry,
        )
        self._sequences = Counter(
            "guidedmodel_sequences",
            "Guided sequences that ended, by rank, backend and reason; tp_rank 0 counts each once",
            ("rank", "tp_rank", "backend", "end_reason"),
            registry=self.registry,
        )
        self._fill_max = Histogram(
            "guidedmodel_mask_fill_max_seconds",
            "The dearest fill of each guided sequence",
            ("rank",),
            buckets=_FILL_BUCKETS_S,
            registry=self.registry,
        )
        self._decode_counters = DecodeCounters(self.registry)
        self._draft_tokens = DraftTokensMetrics(self.registry)
        self._processors = ProcessorCounters(self.registry, processors)
        self._dropped = Counter(
            "guidedmodel_records_dropped",
            "Telemetry records that the engine's processes could not send",
            registry=self.registry,
        )
        self._garbage = Counter(
            "guidedmodel_records_invalid",
            "Datagrams on the telemetry socket that were no record",
            registry=self.registry,
        )

    def take(self, record: AnyRecord) -> None:
        """Count a record, and what its process dropped before it."""
        if record.dropped:
            self._dropped.inc(record.dropped)
        if isinstance(record, HttpRequest):
            self._take_request(record)
        elif isinstance(record, Decode):
            self._take_decode(record)
        elif isinstance(record, DraftTokens):
            self._draft_tokens.take(record)
        elif isinstance(record, ProcessorTimes):
            self._processors.take_times(record)
        elif isinstance(record, ProcessorFailure):
            self._processors.take_failure(record, record.rank % self._ranks, _bounded(record.code))

    @property
    def drafts(self) -> DraftsStatus:
        """Return what there is to know of draft tokens."""
        told = self._draft_tokens
        return msgspec.structs.replace(self._decode_counters.drafts, chosen=told.chosen, off=told.off)

    def take_garbage(self) -> None:
        """Count a datagram that was no record."""
        self._garbage.inc()

    def render(self) -> bytes:
        """Return the page in Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)

    def render_openmetrics(self) -> bytes:
        """Return the page as OpenMetrics, version 1.0.0: the same figures, with exemplars."""
        page: bytes = exposition.generate_latest(self.registry)  # type: ignore[no-untyped-call]  # no types
        return page

    def _take_request(self, record: HttpRequest) -> None:
        code = _bounded(record.error_code or "")
        kind = record.kind or ("unknown" if code in _ABOUT_GRAMMARS else "unguided")
        self._requests.labels(str(record.status), code, kind).inc()
        duration_s = max(0, record.end_ns - record.start_ns) / _NS
        own = TraceContext(record.trace_id, record.span_id, record.flags)
        self._duration.labels(kind).observe(duration_s, self._exemplars.of_record(own))

    def _take_decode(self, record: Decode) -> None:
        rank, tp_rank = str(record.rank), str(record.rank % self._ranks)
        self._sequences.labels(rank, tp_rank, record.backend, _bounded(record.end_reason)).inc()
        request = trace_context.parse(record.traceparent or "")
        self._fill_max.labels(rank).observe(record.fill_max_ns / _NS, self._exemplars.of_record(request))
        self._decode_counters.take(record)


def _bounded(end: str) -> str:
    return end if end in _ENDS else "other"
