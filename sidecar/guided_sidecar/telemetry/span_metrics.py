"""Metrics of what spans cover, of unsampled traces too: spans and metrics cannot say different things."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from prometheus_client import CollectorRegistry, Counter, Histogram

from guided_contract.errors import CATALOGUE
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry.exemplars import Exemplars

_NS: Final = 1e9
# A grammar that is there takes a tenth of a millisecond, an endless compile its deadline.
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# By the HTTP status that the request gets: its own fault, or the pod's.
_OUTCOMES: Final[Mapping[str, str]] = {"": "ok", c.CANCELLED: "cancelled"} | {
    code.value: "refused" if entry.http_status < 500 else "unavailable" for code, entry in CATALOGUE.items()
}
_OTHER: Final = "other"


# The spans that are measured, whether or not their traces are sampled.
MEASURED: Final = frozenset({c.GRAMMAR_PREPARE, c.GRAMMAR_COMPILE, c.GRAMMAR_PROOF, c.GRAMMAR_LOAD})


class SpanMetrics(SpanProcessor):
    """Measures grammars on their way to the ranks.

    Every label's value is one of a few: a span's attributes are ours, error codes are the catalogue's.
    """

    def __init__(self, registry: CollectorRegistry, exemplars: Exemplars) -> None:
        self._exemplars = exemplars

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

    def on_end(self, span: ReadableSpan) -> None:
        """Measure a span that has ended."""
        if span.name not in self._durations:
            return
        histogram, names = self._durations[span.name]
        told = span.attributes or {}
        labels = (str(told.get(name) or "none") for name in names)
        assert span.start_time is not None
        assert span.end_time is not None
        duration_s = max(0, span.end_time - span.start_time) / _NS
        error_code = str(told.get(c.ERROR_TYPE, ""))
        histogram.labels(*labels, _OUTCOMES.get(error_code, _OTHER)).observe(
            duration_s, self._exemplars.of_span(span.get_span_context())
        )
        if span.name == c.GRAMMAR_PREPARE and error_code:
            known = error_code if error_code in _OUTCOMES else _OTHER
            self._refused.labels(known).inc()
