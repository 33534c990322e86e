"""The sidecar's Prometheus metrics of what records tell.

Labels hold codes, ranks, kinds and the resource's own names only, as the engine's processes send them.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from guided_contract import records
from guided_contract.errors import ErrorCode
from guided_contract.records import Decode, DraftTokens, HttpRequest
from guided_contract.status import DraftsStatus
from guided_sidecar.telemetry.span_metrics import SpanMetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Requests that end so asked for a grammar, though it may be unknown of which kind.
_ABOUT_GRAMMARS: Final = frozenset(code.value for code in ErrorCode if code.value.startswith("grammar_")) | {
    ErrorCode.REQUEST_NOT_ADMITTED.value,
    ErrorCode.REQUEST_UNKNOWN_CONSTRAINT.value,
}
_FILL_BUCKETS_S: Final = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
_REQUEST_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class DecodeCount(NamedTuple):
    """What a sequence's record says (durations in seconds), and its names: attribute, metric, help."""

    of: Callable[[Decode], float]
    attribute: str
    metric: str
    text: str


# What a rank counts of each sequence: attributes of guided.decode, and counters by rank.
DECODE_COUNTS: Final = (
    DecodeCount(lambda r: r.tokens, "tokens", "tokens", "Tokens of guided sequences"),
    DecodeCount(lambda r: r.steps, "steps", "decode_steps", "Steps of guided sequences"),
    DecodeCount(lambda r: r.fills, "fills", "mask_fills", "Token masks computed"),
    DecodeCount(
        lambda r: r.fill_ns / 1e9, "fill.duration", "mask_fill_seconds", "Time spent computing token masks"
    ),
    DecodeCount(
        lambda r: r.exposed_ns / 1e9,
        "exposed.duration",
        "mask_exposed_seconds",
        "Time that sampling waited for masks, summed over the waiting sequences",
    ),
    DecodeCount(
        lambda r: r.drafts_proposed,
        "drafts.proposed",
        "drafts_proposed",
        "Draft tokens proposed for guided sequences",
    ),
    DecodeCount(
        lambda r: r.drafts_accepted,
        "drafts.accepted",
        "drafts_accepted",
        "Accepted draft tokens of guided sequences",
    ),
    DecodeCount(
        lambda r: r.drafts_forbidden,
        "drafts.forbidden",
        "drafts_forbidden",
        "Draft tokens that the grammar forbids, and those after them",
    ),
)
_PROCESSOR: Final = ("rank", "processor")
# By name, what each counts, and its labels.
_COUNTERS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "requests": (
        "HTTP requests on generating routes",
        ("status", "error_code", "kind"),
    ),
    "ignored_keys": ("Request keys that vLLM does not know and ignores", ()),
    "sequences": (
        "Guided sequences that ended; with tp_rank 0 each is counted once",
        ("rank", "tp_rank", "backend", "end_reason"),
    ),
    **{count.metric: (count.text, ("rank",)) for count in DECODE_COUNTS},
    "draft_tokens_changes": (
        "Changes of the number of draft tokens per step",
        ("engine",),
    ),
    "processor_steps": ("Steps in which a logits processor had sequences", _PROCESSOR),
    "processor_steps_over_budget": (
        "Steps in which a logits processor took over 5 ms of CPU time",
        _PROCESSOR,
    ),
    "processor_seconds": (
        "CPU time of a logits processor, summed over its sequences",
        _PROCESSOR,
    ),
    "processor_failures": (
        "Sequences ended by a failure of a logits processor; with tp_rank 0 each is counted once",
        ("rank", "tp_rank", "processor", "error_code"),
    ),
    "matchers_restarts": ("Processes of a rank's matchers that ended and were replaced", ("rank",)),
    "records_dropped": ("Telemetry records that the engine's processes could not send", ()),
    "records_invalid": ("Invalid datagrams on the telemetry socket", ()),
}


class SidecarMetrics:
    """Counts records, and renders all metrics of its registry.

    `registry` takes further collectors: each source of figures (exporter, health) registers one. `spans`
    measures those that end. `drafts` is what there is to know of draft tokens, `processor_failures` the
    sequences that ended for each logits processor, `matchers_restarts` by rank how often its matchers were
    replaced. `ranks` is how many ranks sample one sequence, and so count it: the tensor-parallel size.
    """

    def __init__(self, ranks: int = 1) -> None:
        # Else each series has another that tells when it began: twice as many, which nobody asks for.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        self.registry = CollectorRegistry(auto_describe=False)
        self.spans = SpanMetrics(self.registry)
        self.drafts = DraftsStatus()
        self.processor_failures = collections.Counter[str]()
        self.matchers_restarts = collections.Counter[int]()
        self._ranks = ranks
        self._counters = {
            name: Counter(f"guidedmodel_{name}", text, labels, registry=self.registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._duration = Histogram(
            "guidedmodel_request_duration_seconds",
            "Duration of HTTP requests on generating routes",
            ("kind",),
            buckets=_REQUEST_BUCKETS_S,
            registry=self.registry,
        )
        self._fill_max = Histogram(
            "guidedmodel_mask_fill_max_seconds",
            "Slowest mask computation of each guided sequence",
            ("rank",),
            buckets=_FILL_BUCKETS_S,
            registry=self.registry,
        )
        self._draft_tokens = Gauge(
            "guidedmodel_draft_tokens",
            "Number of draft tokens per step that the engine core chose last",
            ("engine",),
            registry=self.registry,
        )

    def take(self, record: records.AnyRecord) -> None:
        """Count a record, and what its process dropped before it."""
        self._count("records_dropped", by=record.dropped)
        match record:
            case HttpRequest():
                self._take_request(record)
            case Decode():
                self._take_decode(record)
            case DraftTokens():
                self._take_draft_tokens(record)
            case records.MatchersRestart():
                self._count("matchers_restarts", record.rank)
                self.matchers_restarts[record.rank] += 1
            case records.ProcessorTimes():
                for each in record.times:
                    labels = record.rank, each.name
                    self._count("processor_steps", *labels, by=each.steps)
                    self._count("processor_steps_over_budget", *labels, by=each.over_budget)
                    self._count("processor_seconds", *labels, by=each.total_ns / 1e9)
            case records.ProcessorFailure():
                names, tp_rank = dict.fromkeys(record.processors), record.rank % self._ranks
                for name in names:
                    self._count("processor_failures", record.rank, tp_rank, name, record.code)
                if tp_rank == 0:
                    self.processor_failures.update(list(names))

    def take_garbage(self) -> None:
        """Count a datagram that was no record."""
        self._count("records_invalid")

    def render(self) -> bytes:
        """Return the page in Prometheus' text format, version 0.0.4."""
        return prometheus_client.generate_latest(self.registry)

    def _count(self, name: str, *labels: str | int, by: float = 1) -> None:
        counter = self._counters[name]
        (counter.labels(*map(str, labels)) if labels else counter).inc(by)

    def _take_request(self, record: HttpRequest) -> None:
        code = record.error_code or ""
        kind = record.kind or ("unknown" if code in _ABOUT_GRAMMARS else "unguided")
        self._count("requests", record.status, code, kind)
        self._count("ignored_keys", by=record.ignored_keys)
        self._duration.labels(kind).observe(max(0, record.end_ns - record.start_ns) / 1e9)

    def _take_decode(self, record: Decode) -> None:
        rank = record.rank
        self._count("sequences", rank, rank % self._ranks, record.backend, record.end_reason)
        self._fill_max.labels(str(rank)).observe(record.fill_max_ns / 1e9)
        for count in DECODE_COUNTS:
            self._count(count.metric, rank, by=count.of(record))

    def _take_draft_tokens(self, record: DraftTokens) -> None:
        self.drafts = DraftsStatus(chosen=record.chosen, off=record.why)
        if record.chosen is None:
            self._draft_tokens.clear()
        else:
            self._draft_tokens.labels(str(record.engine)).set(record.chosen)
        self._count("draft_tokens_changes", record.engine, by=record.changes)
