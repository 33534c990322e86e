"""Metrics of what spans cover, of unsampled traces too: spans and metrics cannot say different things."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from prometheus_client import CollectorRegistry, Counter, Histogram

from guided_contract.errors import ErrorCode
from guided_sidecar.telemetry import conventions as c

# A grammar that is there takes a tenth of a millisecond, an endless compile its deadline.
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# By the HTTP status that the request gets: its own fault, or the pod's.
_OUTCOMES: Final[Mapping[str, str]] = {"": "ok", c.CANCELLED: "cancelled"} | {
    code.value: "refused" if code.http_status < 500 else "unavailable" for code in ErrorCode
}
# Attributes that are labels, by the last word of each, and what the metric counts.
_MEASURES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    c.GRAMMAR_PREPARE: (
        (c.GRAMMAR_KIND, c.GRAMMAR_CACHE),
        "From the request for a grammar to its load on every rank, or to its refusal",
    ),
    c.GRAMMAR_COMPILE: (
        (c.GRAMMAR_KIND, c.GRAMMAR_BACKEND),
        "Compiles in grammar workers, with the wait for a worker and the proof",
    ),
    c.GRAMMAR_PROOF: ((c.GRAMMAR_BACKEND,), "Proofs of compiled grammars"),
    c.GRAMMAR_LOAD: ((c.RANK,), "Loads of a grammar on a rank"),
}


class SpanMetrics(SpanProcessor):
    """Measures grammars on their way to the ranks.

    Every label's value is one of a few: a span's attributes are ours, error codes are the catalogue's.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._durations = {
            span: Histogram(
                f"guidedmodel_{span.replace('.', '_')}_seconds",
                text,
                (*(name.rpartition(".")[2] for name in names), "outcome"),
                buckets=_BUCKETS_S,
                registry=registry,
            )
            for span, (names, text) in _MEASURES.items()
        }
        self._refused = Counter(
            "guidedmodel_grammars_refused",
            "Refused requests for a grammar",
            ("error_code",),
            registry=registry,
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Measure a span that has ended."""
        if span.name not in _MEASURES:
            return
        told = span.attributes or {}
        labels = (str(told.get(name) or "none") for name in _MEASURES[span.name][0])
        duration_s = max(0, (span.end_time or 0) - (span.start_time or 0)) / 1e9
        error_code = str(told.get(c.ERROR_TYPE, ""))
        outcome = _OUTCOMES.get(error_code, "other")
        self._durations[span.name].labels(*labels, outcome).observe(duration_s)
        if span.name == c.GRAMMAR_PREPARE and error_code:
            self._refused.labels(error_code).inc()
