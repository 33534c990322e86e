"""Metrics of what spans cover, of unsampled traces too: spans and metrics cannot say different things."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from guided_contract.errors import CATALOGUE
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry.spans import FinishedSpan

_NS: Final = 1e9
# A grammar that is there takes a tenth of a millisecond, an endless compile its deadline.
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# By the HTTP status that the request gets: its own fault, or the pod's.
_OUTCOMES: Final[Mapping[str, str]] = {"": "ok", c.CANCELLED: "cancelled"} | {
    code.value: "refused" if entry.http_status < 500 else "unavailable" for code, entry in CATALOGUE.items()
}
_OTHER: Final = "other"


class SpanMetrics:
    """Measures grammars on their way to the ranks.

    Every label's value is one of a few: a span's attributes are ours, error codes are the catalogue's.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(name, text, (*labels, "outcome"), buckets=_BUCKETS_S, registry=registry)

        self._durations: dict[str, tuple[Histogram, tuple[str, ...]]] = {
            c.GRAMMAR_PREPARE: (
                histogram(
                    "guidedmodel_grammar_prepare_seconds",
                    "From the request for a grammar to its load on every rank, or to its refusal",
                    *("kind", "cache"),
                ),
                (c.GRAMMAR_KIND, c.GRAMMAR_CACHE),
            ),
            c.GRAMMAR_COMPILE: (
                histogram(
                    "guidedmodel_grammar_compile_seconds",
                    "Compiles in grammar workers, with the wait for a worker and the proof",
                    *("kind", "backend"),
                ),
                (c.GRAMMAR_KIND, c.GRAMMAR_BACKEND),
            ),
            c.GRAMMAR_PROOF: (
                histogram("guidedmodel_grammar_proof_seconds", "Proofs of compiled grammars", "backend"),
                (c.GRAMMAR_BACKEND,),
            ),
            c.GRAMMAR_LOAD: (
                histogram("guidedmodel_grammar_load_seconds", "Loads of a grammar on a rank", "rank"),
                (c.RANK,),
            ),
        }
        self._refused = Counter(
            "guidedmodel_grammars_refused",
            "Requests for a grammar that got none, by error code",
            ("error_code",),
            registry=registry,
        )

    def take(self, span: FinishedSpan) -> None:
        """Measure a finished span."""
        if span.name not in self._durations:
            return
        histogram, attributes = self._durations[span.name]
        labels = (str(span.attributes.get(name) or "none") for name in attributes)
        duration_s = max(0, span.end_ns - span.start_ns) / _NS
        histogram.labels(*labels, _OUTCOMES.get(span.error_code, _OTHER)).observe(duration_s)
        if span.name == c.GRAMMAR_PREPARE and span.error_code:
            known = span.error_code if span.error_code in _OUTCOMES else _OTHER
            self._refused.labels(known).inc()
